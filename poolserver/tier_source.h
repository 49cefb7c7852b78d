// The rows of replicas as another tier of this node holds them, for a move between tiers: read in
// large pieces at the rate that pulls have, seals checked, block checksums computed here and
// compared with the replica's by who asked for the copy. Thread-safe.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/shard_layout.h"
#include "engram/table_spec.h"
#include "poolserver/load_source.h"
#include "poolserver/rate_limit.h"
#include "poolserver/row_packer.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver {

class TierSource final : public LoadSource {
 public:
  // REQUIRES: the pointers outlive the source; rate and stopping may be null; the shards that are
  // asked for are committed in `from` and not freed.
  TierSource(const TableRecord& table, TierStore* from, RateLimit* rate, const Clock* clock,
             const std::atomic<bool>* stopping);

  // DataLoss: the tier does not give the bytes, or a seal is wrong. Cancelled: the node is
  // stopping.
  absl::Status Fill(std::span<const RowRun> runs, Scratch* scratch) const override;

 private:
  absl::Status Copy(const RowRun& run, std::vector<std::byte>* scratch) const;
  absl::Status AwaitRate(std::uint64_t bytes) const;

  const ShardLayout layout_;
  const RowPacker packer_;
  const TableUid table_;
  TierStore* const from_;
  RateLimit* const rate_;
  const Clock* const clock_;
  const std::atomic<bool>* const stopping_;
};

}  // namespace engram::poolserver
