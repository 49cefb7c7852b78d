// What the operations and duties of one controller share: the registry, and what need not survive
// (links, commands under way, checksums of loading tables). A plain struct: its users are the files
// of ops/ and duties/, and nobody else. Thread-confined: call from the owner thread only.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "placement/ops/controller.h"
#include "placement/plan/place_table.h"
#include "placement/state/registry.h"

namespace engram::placement {

// A stream whose node was welcomed.
struct Link {
  NodeId node;
  Incarnation incarnation;
};

// What is known of a node besides its record. Made when it is first heard of.
struct NodeContact {
  std::optional<LinkId> link;
  Instant heard{};
  NodeLive live;
  // Told on this link already.
  std::map<TableUid, std::set<ShardIndex>> loads_sent, retires_sent, tier_moves_sent;
  // Replicas that it was told to drop because the state does not have them; what it says of them
  // counts for nothing until it says that they are gone, or takes a later command to load them: by
  // the last command then.
  std::map<ShardKey, std::uint64_t> unwanted;
  std::vector<TenantPolicy> policies;  // told on this link
  // Tiers that had no room for a copy, whatever they say of themselves: until when nothing new goes
  // there, and the node's words.
  std::map<Tier, std::pair<Instant, std::string>> full;
};

// A process that says hello while another of the same NodeId has a stream: it waits until the other
// one speaks (refused) or is gone or silent (welcomed).
struct Newcomer {
  NodeHello hello;
  Instant since{};
};

struct SentCommand {
  NodeId node;
  TableUid table;
  std::vector<ShardIndex> shards;
  enum class Kind { kLoad, kRetire, kInspect } kind = Kind::kLoad;
};

// A checkpoint load whose source a node is looking at.
struct InspectionUnderWay {
  LoadRequest request;
  std::vector<CallId> calls;
  std::set<NodeId> asked;
  std::uint64_t command = 0;
  NodeId node;
  Instant deadline{};
};

// Checksums of a Loading table, until it is Ready.
struct LoadProgress {
  std::map<ShardIndex, std::vector<std::uint32_t>> crcs;
  std::map<ShardIndex, std::set<NodeId>> compared;  // holders whose checksums were seen and equal
  Epoch planned_at;     // re-placing was last tried at this epoch, in vain
  std::string no_room;  // what the last node said that had no room for a copy
};

// Attempts of a node to load a replica before it goes elsewhere.
inline constexpr std::uint32_t kMostAttempts = 8;

struct Core {
  ControllerOptions options;
  std::unique_ptr<Registry> registry;
  Random* random = nullptr;
  Instant now{};
  std::vector<Action> actions;
  Counters counters;

  std::map<LinkId, Instant> silent;  // streams without a hello so far, and when they began
  std::map<LinkId, Link> links;
  std::map<NodeId, NodeContact> contacts;
  std::map<LinkId, Newcomer> newcomers;
  std::map<std::uint64_t, SentCommand> commands;
  std::vector<InspectionUnderWay> inspections;
  std::map<TableUid, LoadProgress> progress;
  std::map<std::pair<NodeId, ShardKey>, Instant> not_before;  // when a load may be sent again
  std::map<TableUid, std::string> failures;                   // Loading tables to be failed
  std::map<NodeId, Instant> dead_since;                       // as this controller knows it
  std::map<ShardKey, Instant> both_serve_since;               // of moves
  Instant next_evacuation{};
  Instant next_rebalance{};
  std::map<ShardKey, std::string> move_notes;
  std::map<TableUid, std::string> table_notes;
  // In a row; a node that has no room is not asked again: kMostAttempts at once.
  std::map<std::pair<NodeId, ShardKey>, std::uint32_t> failed_loads;
  std::uint64_t last_command = 0;
  // What policies were last made of; whether a node was told any by this controller.
  Epoch policies_epoch;
  std::map<std::string, std::shared_ptr<const TenantRecord>> policies_of;
  bool policies_told = false;
  bool changed = false;  // duties have something to look at

  const ClusterState& state() const { return registry->state(); }

  // Commits and publishes. A failure is counted and said; Aborted and Unknown add Deposed.
  absl::Status Commit(Change change);
  void Send(LinkId link, ControllerToNode message);
  // Null unless the node is alive and has a stream.
  NodeContact* Reachable(const NodeId& node);
  // REQUIRES: Reachable(node).
  std::uint64_t SendCommand(const NodeId& node, SentCommand sent,
                            std::variant<LoadReplicas, RetireReplicas, InspectSource> body);
  // Counts a plan and how long `make` took to make it.
  template <class Make>
  auto CountPlan(Make make) {
    const Clock* stopwatch = options.stopwatch;
    const Instant start = stopwatch == nullptr ? Instant() : stopwatch->Now();
    auto plan = make();
    ++counters.plans;
    if (stopwatch != nullptr) {
      counters.plan_ns += static_cast<std::uint64_t>((stopwatch->Now() - start).count());
    }
    return plan;
  }
  // PlaceTable, counted.
  absl::StatusOr<TablePlaces> PlanFor(const TableRecord& table, const ShardLayout& layout,
                                      const std::vector<MapChunk>& chunks);
  void SayLine(std::string text) { actions.push_back(Say{std::move(text)}); }
};

// "tenant/client/request", or "" when there is no request id.
std::string RequestKey(const CallerId& caller);

}  // namespace engram::placement
