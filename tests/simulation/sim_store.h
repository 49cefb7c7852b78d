// The state store as one process of the controller sees it: another store behind a network that
// fails transactions, and loses answers of transactions that were applied, were not, or are only
// when the next one is on its way. Thread-confined: call from the owner thread only.
#pragma once

#include <optional>

#include "placement/store/state_store.h"
#include "tests/simulation/world.h"

namespace engram::simulation {

class SimStore final : public placement::StateStore {
 public:
  // Both must outlive it. `troubled`: how many transactions went wrong.
  SimStore(World* world, placement::StateStore* behind, std::uint64_t* troubled)
      : world_(world), behind_(behind), troubled_(troubled) {}

  void TroubleUntil(Instant until) { until_ = until; }
  // Nothing gets through.
  void CutUntil(Instant until) { cut_until_ = until; }

  absl::StatusOr<std::optional<placement::StoreEntry>> Get(const std::string& key) override {
    if (is_cut()) return NoAnswer();
    return behind_->Get(key);
  }
  absl::StatusOr<placement::StoreListing> List(const std::string& prefix) override {
    if (is_cut()) return NoAnswer();
    return behind_->List(prefix);
  }
  absl::StatusOr<placement::Revision> Txn(const placement::StoreTxn& txn) override;
  absl::StatusOr<std::unique_ptr<placement::StoreWatch>> Watch(const std::string& prefix,
                                                               placement::Revision after) override {
    return behind_->Watch(prefix, after);
  }
  std::string Describe() const override { return behind_->Describe(); }

 private:
  static absl::Status NoAnswer() { return absl::UnavailableError("the store does not answer"); }
  bool is_cut() const { return world_->now() < cut_until_; }

  World* const world_;
  placement::StateStore* const behind_;
  std::uint64_t* const troubled_;
  Instant until_{}, cut_until_{};
  std::optional<placement::StoreTxn> late_;
};

}  // namespace engram::simulation
