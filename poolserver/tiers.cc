#include "poolserver/tiers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::poolserver {

void Tiers::Add(std::unique_ptr<TierStore> store) {
  ENGRAM_CHECK(!Find(store->tier()).ok());
  const auto place = std::find_if(stores_.begin(), stores_.end(),
                                  [&](const auto& other) { return other->tier() > store->tier(); });
  stores_.insert(place, std::move(store));
}

absl::StatusOr<TierStore*> Tiers::Find(Tier tier) const {
  std::string there;
  for (const auto& store : stores_) {
    if (store->tier() == tier) return store.get();
    absl::StrAppend(&there, there.empty() ? "" : ", ", std::string(Name(store->tier())));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this node has no ", std::string(Name(tier)), " tier; it has ",
                   there.empty() ? "none" : there,
                   ". Give it one (--memory, --cxl-memory, --cxl-devices, --nvme-dir) and start it "
                   "again"));
}

std::vector<TierCapacity> Tiers::capacity() const {
  std::vector<TierCapacity> out;
  for (const auto& store : stores_) out.push_back(store->capacity());
  return out;
}

}  // namespace engram::poolserver
