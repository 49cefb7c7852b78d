// The data plane of a pool node in this process: a table's shards in the NVMe tier, or in memory,
// exposed on a stream target and read over TCP as a client reads them. Thread-confined: call from
// the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/paths.h"
#include "engram/shard_layout.h"
#include "engram/table_spec.h"
#include "fabric/stream/stream_fabric.h"
#include "fabric/stream/stream_target.h"
#include "poolserver/nvme/nvme_store.h"

namespace engram::bench {

// A DeepSeek-V4.1-shaped synthetic table, sealed.
absl::StatusOr<TableRecord> TierTable(std::uint64_t base_rows, std::uint64_t seed);

// Reads rows over `queue`, one read a row with its seal apart, as RowReader posts them: up to
// `outstanding` batches of at most `max_rows` rows. `regions`, by shard, may change between two
// reads; it and the layout outlive the path.
std::unique_ptr<ReadPath> TierReads(std::string name, const ShardLayout& layout,
                                    const std::vector<fabric::RemoteRegion>& regions,
                                    std::unique_ptr<fabric::ReadQueue> queue,
                                    std::uint32_t max_rows, std::uint32_t outstanding);

class TierNode {
 public:
  struct Options {
    std::string directory;  // empty: the rows are in `memory`
    std::uint64_t cache_bytes = 0;
    std::uint32_t depth = 128;
    const BenchTable* memory = nullptr;  // rows and seals, `stride` apart
  };
  // Writes the shards, or takes up those that an earlier node left in the directory.
  static absl::StatusOr<std::unique_ptr<TierNode>> Open(const TableRecord& table,
                                                        const Options& options);
  ~TierNode();

  // Reads with up to `outstanding` batches of at most `max_rows` rows. The node outlives the path.
  absl::StatusOr<std::unique_ptr<ReadPath>> Path(std::string name, std::uint32_t max_rows,
                                                 std::uint32_t outstanding);
  // Null where the rows are in memory.
  poolserver::nvme::NvmeStore* store() const { return store_.get(); }
  // The files that hold the rows.
  std::vector<std::string> Files() const;

 private:
  explicit TierNode(const TableRecord& table)
      : table_(table), layout_(table_.spec, table_.options) {}
  absl::Status OpenStore(const Options& options);
  absl::Status Fill(ShardIndex shard);
  absl::Status Expose(const Options& options);

  const TableRecord table_;
  const ShardLayout layout_;
  std::unique_ptr<poolserver::nvme::NvmeStore> store_;
  std::unique_ptr<fabric::stream::StreamTarget> target_;
  std::unique_ptr<fabric::stream::StreamFabric> fabric_;
  std::vector<fabric::RemoteRegion> regions_;  // by shard
};

}  // namespace engram::bench
