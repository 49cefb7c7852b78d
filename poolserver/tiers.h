// The tier stores of a node, one a tier at most. Immutable once the node has started: Thread-safe
// from then on.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/node_protocol.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver {

class Tiers {
 public:
  // REQUIRES: no store of its tier is there yet.
  void Add(std::unique_ptr<TierStore> store);

  // FailedPrecondition: this node has no such tier; names those it has.
  absl::StatusOr<TierStore*> Find(Tier tier) const;
  // Fastest first.
  const std::vector<std::unique_ptr<TierStore>>& stores() const { return stores_; }
  std::vector<TierCapacity> capacity() const;

 private:
  std::vector<std::unique_ptr<TierStore>> stores_;
};

}  // namespace engram::poolserver
