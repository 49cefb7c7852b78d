// What a replica lies in (ARCHITECTURE section 1), the fastest first. Free functions: Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace engram {

enum class Tier : std::uint8_t { kDram = 1, kCxl = 2, kNvme = 3 };
inline constexpr std::array<Tier, 3> kTiers = {Tier::kDram, Tier::kCxl, Tier::kNvme};

std::string_view Name(Tier tier);
// InvalidArgument names the tiers that there are.
absl::StatusOr<Tier> ParseTier(std::string_view name);

}  // namespace engram
