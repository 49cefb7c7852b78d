#include "engram/tier.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace engram {

std::string_view Name(Tier tier) {
  switch (tier) {
    case Tier::kDram: return "dram";
    case Tier::kCxl: return "cxl";
    case Tier::kNvme: return "nvme";
  }
  return "unknown";
}

absl::StatusOr<Tier> ParseTier(std::string_view name) {
  for (const Tier tier : kTiers) {
    if (Name(tier) == name) return tier;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(name), "\" is not a tier; those are dram, cxl and nvme"));
}

}  // namespace engram
