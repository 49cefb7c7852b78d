// A pool node in this process, with a dram and an nvme tier, without sockets but those of its
// stream fabric: this side is its controller, which moves the table from tier to tier, and a client
// that reads it meanwhile. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/driver/paths.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "engram/shard_layout.h"
#include "fabric/stream/stream_fabric.h"
#include "poolserver/node_loop.h"

namespace engram::bench {

class MovingNode {
 public:
  // A node that serves the whole table from dram, and a client that is granted it. `directory` is
  // on a disk.
  static absl::StatusOr<std::unique_ptr<MovingNode>> Start(const TableRecord& table,
                                                           const std::string& directory);
  ~MovingNode();

  // Tells the node to move every shard.
  void MoveTo(Tier tier);
  // Every shard serves from the tier / nothing is left in it. DataLoss, ...: what a shard reported.
  absl::StatusOr<bool> ServesFrom(Tier tier);
  bool HasLeft(Tier tier) const;
  // What the client does between two reads: takes the node's news, and renews its lease.
  absl::Status Renew();
  // The client's path; call Renew between its reads.
  absl::StatusOr<std::unique_ptr<ReadPath>> Path(std::uint32_t max_rows);

 private:
  explicit MovingNode(const TableRecord& table)
      : table_(table), layout_(table_.spec, table_.options) {}
  absl::Status Open(const std::string& directory);
  poolserver::NodeOutlets Outlets();
  absl::Status OpenSessionThere();
  static absl::Status Await(const std::function<absl::StatusOr<bool>()>& condition);
  absl::Status Connect(const SessionOpened& opened);
  absl::Status Apply(const GrantUpdate& update);

  const TableRecord table_;
  const ShardLayout layout_;
  SystemRandom random_;
  poolserver::Tiers tiers_;
  std::unique_ptr<poolserver::Exposure> exposure_;
  std::unique_ptr<poolserver::NodeLoop> loop_;
  std::unique_ptr<fabric::stream::StreamFabric> fabric_;
  fabric::PeerId peer_;
  std::vector<fabric::RemoteRegion> regions_;  // by shard
  std::uint64_t commands_ = 0, renewals_ = 0;
  GrantRevision applied_;

  Mutex mutex_;
  std::vector<NodeMessage> heard_ ABSL_GUARDED_BY(mutex_);  // by the client
  std::map<ShardIndex, Tier> serving_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::bench
