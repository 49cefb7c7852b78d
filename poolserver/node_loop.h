// The event loop of a pool node: one thread that owns NodeState, feeds it what happens and carries
// out what it answers. Whatever may take long runs on other threads and comes back as an event, and
// whatever speaks gRPC is an outlet, so nothing outside can hold the loop up. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "poolserver/duty.h"
#include "poolserver/exposure.h"
#include "poolserver/loader.h"
#include "poolserver/node_state.h"
#include "poolserver/pull_source.h"
#include "poolserver/tiers.h"

namespace engram::poolserver {

// Where the loop's answers go. Called from the loop's thread (`say` from any); must not block.
struct NodeOutlets {
  std::function<void(StreamId, const NodeMessage&)> to_client;
  std::function<void(StreamId)> close_stream;
  std::function<void(const NodeToController&)> to_controller;
  // Another process owns this NodeId, or the id was refused: end the program.
  std::function<void(const absl::Status&)> exit;
  // What calls are judged by from now on; may be empty.
  std::function<void(const std::vector<TenantPolicy>&)> policies = nullptr;
  // What each tenant gathered so far; may be empty.
  std::function<std::vector<TenantUse>()> tenant_uses = nullptr;
  // A line for people about something that happened.
  std::function<void(const std::string&)> say;
};

class NodeLoop {
 public:
  using Inspect = std::function<absl::StatusOr<Inspection>(const TableName&, const TableSource&)>;

  // REQUIRES: tiers, exposure, clock and random outlive the loop; options.paths are those of
  // `exposure` and options.tiers the capacities of `tiers`.
  // `pulling`: how to reach other nodes; without a fabric, loads that name one fail.
  NodeLoop(const NodeOptions& options, const Loader::Options& loading, const Tiers* tiers,
           Exposure* exposure, const Clock* clock, Random* random, Inspect inspect,
           NodeOutlets outlets, PullMeans pulling = {});
  ~NodeLoop();  // = Stop()

  // `handled`, if any, runs on the loop's thread after the event and its actions. Dropped after
  // Stop.
  void Post(Event event, std::function<void()> handled = nullptr);
  // Runs `look` on the loop's thread between two events. Dropped after Stop.
  void Ask(std::function<void(const NodeState&)> look);

  std::uint64_t bytes_loaded() const { return loader_.bytes_loaded(); }
  std::uint64_t bytes_pulled() const { return puller_.bytes_loaded(); }
  // Ends loading, waits for the threads. Idempotent.
  void Stop();

 private:
  struct Item {
    Event event = Timer{};
    std::function<void()> handled;
    std::function<void(const NodeState&)> look;  // instead of the event, when set
  };

  // What is needed to find a table's rows in memory.
  struct SeenTable {
    explicit SeenTable(const TableRecord& table)
        : layout(table.spec, table.options), packer(table) {}
    const ShardLayout layout;
    const RowPacker packer;
  };

  void Run();
  absl::Status Scrub(const ScrubSlice& slice, const SeenTable& table,
                     std::vector<std::byte>* scratch) const;
  absl::StatusOr<ReplicaExposed> Expose(const ExposeReplica& replica, std::uint32_t stride) const;
  void Handle(Item item);
  void Feed(Event event);
  void ReportCapacity(Instant now);
  void FollowAddresses();
  // What both loaders tell: an event of the loop.
  Loader::Ended PostEnded();

  void Do(SendToController& action);
  void Do(SendToClient& action);
  void Do(CloseStream& action);
  void Do(AdmitSession& action);
  void Do(DismissSession& action);
  void Do(UsePolicies& action);
  void Do(AllowReplicas& action);
  void Do(DisallowReplicas& action);
  void Do(StartLoad& action);
  void StartMove(const StartLoad& action);
  void Do(StopLoad& action);
  void Do(ExposeReplica& action);
  void Do(HideReplica& action);
  void Do(ReleaseMemory& action);
  void Do(ScrubSlice& action);
  void Do(StartInspection& action);
  void Do(Exit& action);

  const Tiers* const tiers_;
  Exposure* const exposure_;
  const Clock* const clock_;
  const Inspect inspect_;
  const NodeOutlets outlets_;

  NodeState state_;  // the loop's thread only
  PullMeans pulling_;
  std::atomic<bool> pulls_stopping_{false};
  std::map<TableUid, std::shared_ptr<const SeenTable>>
      tables_;                                // of StartLoad; the loop's thread only
  std::vector<TierCapacity> reported_tiers_;  // the loop's thread only
  Incarnation incarnation_;                   // the loop's thread only
  bool reachable_ = false;                    // the loop's thread only
  Instant next_capacity_check_{};             // the loop's thread only
  std::atomic<bool> following_{false};        // the memory duty looks at addresses

  Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Loader loader_;                         // from tables' sources
  Loader puller_;                         // from other nodes
  Loader mover_;                          // from other tiers of this node
  Duty memory_duty_;                      // registers, deregisters and frees, in order
  Duty inspect_duty_;                     // looks at sources
  Duty scrub_duty_;                       // looks at what is served
  std::vector<std::byte> scrub_scratch_;  // the scrub duty's only
  std::thread thread_;
};

}  // namespace engram::poolserver
