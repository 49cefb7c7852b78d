// A StateStore that forgets everything with the process: for tests and the simulator, which keep
// one across simulated controller crashes. Thread-confined: call from the owner thread only.
#pragma once

#include <map>

#include "placement/store/state_store.h"

namespace engram::placement {

class MemoryStore final : public StateStore {
 public:
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<StoreListing> List(const std::string& prefix) override;
  absl::StatusOr<Revision> Txn(const StoreTxn& txn) override;
  absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                    Revision after) override;
  std::string Describe() const override { return "memory"; }

  // Every later Txn fails with `status` until it is OK again: a full disk, a lost leadership.
  void FailWrites(absl::Status status) { failure_ = std::move(status); }

 private:
  friend class MemoryWatch;
  struct Cell {
    std::optional<std::string> value;  // none: deleted
    Revision revision;
  };
  Revision RevisionOf(const std::string& key) const;

  std::map<std::string, Cell> cells_;
  Revision revision_;
  absl::Status failure_;
};

}  // namespace engram::placement
