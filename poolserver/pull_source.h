// The rows of a table as another node serves them: stored rows read in the bulk lane of a fabric,
// straight into the memory of the new replica, at a bounded rate. What landed is sealed rows
// already; their seals are checked and their block checksums computed here, and compared with the
// table's by who asked for the load. The session with the other node is opened when it is first
// needed. Thread-safe; fills one after the other.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "engram/session.h"
#include "engram/shard_layout.h"
#include "fabric/fabric.h"
#include "poolserver/load_source.h"
#include "poolserver/pull_session.h"
#include "poolserver/rate_limit.h"

namespace engram::poolserver {

// The stream of one read session, as its reader sees it. Destroying it ends the stream; nothing is
// heard afterwards. Thread-safe.
class PullLink {
 public:
  virtual ~PullLink() = default;
  virtual void Send(const ClientMessage& message) = 0;
};
struct PullHears {
  std::function<void(const NodeMessage&)> heard;
  std::function<void(const absl::Status&)> lost;  // last
};

// What every pull of a node shares. Thread-safe.
struct PullMeans {
  std::function<std::unique_ptr<PullLink>(const std::string& endpoint, PullHears hears)> open_link;
  fabric::Fabric* fabric = nullptr;  // of kind `stream`
  FabricKind kind = FabricKind::kStream;
  RateLimit* rate = nullptr;
  const Clock* clock = nullptr;
  Random* random = nullptr;
  const std::atomic<bool>* stopping = nullptr;
  std::string client;                           // this node, for people
  Duration patience = std::chrono::seconds(5);  // without an answer or a byte
};

// The reads that fetch rows [run.first, ...) of a shard into run.out; cookies are 0. Many short
// ones: a node that serves other readers looks at them between slices of a bulk message.
std::vector<fabric::ReadOp> PullOps(const ShardLayout& layout, ShardIndex shard, const RowRun& run,
                                    const fabric::RemoteRegion& region);

class PullSource final : public LoadSource {
 public:
  PullSource(const TableRecord& table, Successor from, PullMeans means);
  ~PullSource() override;  // goodbye

  // Unavailable: the other node cannot be reached, does not serve a shard (any more), or is silent.
  // DataLoss: a seal is wrong.
  absl::Status Fill(std::span<const RowRun> runs, Scratch* scratch) const override;

 private:
  class Puller;
  const std::unique_ptr<Puller> puller_;
};

}  // namespace engram::poolserver
