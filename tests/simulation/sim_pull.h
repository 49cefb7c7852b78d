// A node of the simulation pulls one shard from another: the real poolserver::PullSession over a
// stream of the world, the reads that a real pull posts over a simulated fabric, and the checks of
// a real one. Thread-confined: call from the owner thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "poolserver/pull_session.h"
#include "poolserver/pull_source.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/sim_fabric.h"

namespace engram::simulation {

class SimPull : public std::enable_shared_from_this<SimPull> {
 public:
  // The block checksums, or why there are none; called once, when nothing lands any more.
  using Ended = std::function<void(absl::StatusOr<std::vector<std::uint32_t>>)>;

  SimPull(Cluster* cluster, Process* process, const TableRecord& table, ShardIndex shard,
          const Successor& from, std::byte* out, Ended ended);
  ~SimPull();

  void Start();
  void Cancel() { End(absl::CancelledError("given up")); }

 private:
  void Tick();
  void Advance();
  void Connect();
  void Flush();
  void End(absl::StatusOr<std::vector<std::uint32_t>> result);
  void Say(const ClientMessage& message);

  Cluster* const cluster_;
  Process* const process_;
  const TableRecord table_;
  const ShardLayout layout_;
  const ShardKey key_;
  const Successor from_;
  std::byte* const out_;
  const Ended ended_;
  std::optional<Instant> deadline_;
  poolserver::PullSession session_;
  SimNode* node_ = nullptr;
  std::shared_ptr<Stream> stream_;
  std::uint64_t stream_id_ = 0;
  std::unique_ptr<SimFabric> fabric_;
  std::unique_ptr<fabric::ReadQueue> queue_;
  std::optional<fabric::PeerId> peer_;
  std::optional<fabric::RemoteRegion> region_;
  std::vector<fabric::ReadOp> ops_;
  std::size_t posted_ = 0, completed_ = 0;
  bool over_ = false;
};

}  // namespace engram::simulation
