#include "tests/simulation/sim_store.h"

#include <utility>

namespace engram::simulation {

absl::StatusOr<placement::Revision> SimStore::Txn(const placement::StoreTxn& txn) {
  if (is_cut()) return NoAnswer();
  // Its compares may have become false meanwhile: then it is as if it had never been.
  if (const auto late = std::exchange(late_, std::nullopt)) (void)behind_->Txn(*late);
  if (world_->now() >= until_ || world_->Chance(50)) return behind_->Txn(txn);
  ++*troubled_;
  switch (world_->Below(5)) {
    case 0:
    case 1: return NoAnswer();
    case 2: (void)behind_->Txn(txn); break;
    case 3: late_ = txn; break;
    default: break;
  }
  return absl::UnknownError("the store's answer was lost");
}

}  // namespace engram::simulation
