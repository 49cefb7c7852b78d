// Which node gets which shard: a pure, deterministic function of its input. It moves nothing and
// knows no store, clock or network; placement/ops and placement/duties carry plans out. One
// function answers every case: a new table, a node that joined, left, is cordoned or drains,
// unlike nodes, hot shards. It starts from where the replicas are and takes the steps that the
// goals ask for, in this order:
//   1. replication, in distinct failure domains;   2. capacity;
//   3. no more nodes a table than capacity, load and replication need, never more than max_nodes;
//   4. lowest maximum load;   5. more copies of shards too hot for one node;   6. fewest bytes.
// A plan that was carried out leaves nothing to plan, unless a step waited for memory that another
// one frees, for a later plan's bytes, or for a node to let go of a copy before it takes it in
// another tier: then repeating ends after a few plans.
//
// What copies are placed on is a tier of a node: its own room and read rate, the node's failure
// domain, so that two copies never share a node. Nodes are counted as nodes. A new copy goes to the
// fastest tier that the table may use and that has room; for load, nothing moves to a slower tier
// than it is in, so what is read most ends in the fastest ones. Nothing moves inside a node.
//
// A tier's load is the bytes a second that are read from it over those it can serve. Loads within
// PlanLimits::goal of the bound are as good as equal, and nothing moves for load before the highest
// one exceeds that by `hysteresis`, so that a load that swings does not make shards swing. Equal
// choices are settled by name: the order of the input's nodes and tables does not matter.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/table_spec.h"
#include "engram/tier.h"

namespace engram::placement {

enum class NodeMode : std::uint8_t {
  kAlive,     // takes replicas
  kCordoned,  // keeps what it has, takes none
  kDraining,  // gives up what it has
  kDead,      // what it had is lost
};

// One tier of one node.
struct PlanNode {
  NodeId id;
  std::string failure_domain;  // empty: the node is a domain of its own
  NodeMode mode = NodeMode::kAlive;
  std::int64_t free_bytes = 0;              // beside what the view says it holds; below 0: too full
  std::uint64_t read_bytes_per_second = 0;  // 0 = not measured
  Tier tier = Tier::kDram;
};

struct PlanShard {
  std::uint64_t bytes = 0;
  double reads_per_second = 0;       // rows, of all clients
  std::vector<std::uint32_t> nodes;  // that hold or load it: indices into PoolView::nodes
  // A move is under way: `nodes` is where it leads, `leaving` still hold the bytes; left alone.
  bool moving = false;
  std::vector<std::uint32_t> leaving;
};

struct PlanTable {
  TableUid uid;
  TableName name;
  std::uint32_t replicas = 1;
  std::uint32_t max_nodes = 0;  // 0 = as few as capacity, load and replication need
  std::uint32_t row_bytes = 0;  // as stored
  std::vector<PlanShard> shards;
  std::vector<Tier> tiers = {};  // that it may use; empty: all
};

struct PoolView {
  std::vector<PlanNode> nodes;
  std::vector<PlanTable> tables;
};

struct PlanLimits {
  std::uint64_t bytes = std::uint64_t{1} << 62;  // of one plan; one step is always allowed
  // Of dram that was not measured; half of it for cxl, an eighth for nvme.
  std::uint64_t read_bytes_per_second = std::uint64_t{2} << 30;
  double goal = 1.05;             // highest load over the bound that is good enough
  double hysteresis = 0.05;       // beyond `goal` before anything moves for load
  double target_load = 0.5;       // a node below it needs no help of nodes that lack the table
  double quiet_load = 0.001;      // nothing moves for load while no node has more
  std::uint32_t most_copies = 4;  // of a shard, copies for its heat included
};

enum class PlanGoal : std::uint8_t {
  kReplication = 1,
  kDrain = 2,
  kCapacity = 3,
  kFewNodes = 4,
  kLoad = 5,
  kHotCopies = 6,
  kSurplus = 7,  // a copy that nothing needs any more goes
};
std::string_view Name(PlanGoal goal);

// One step. `from` and `to`: a move. `to` alone: one more copy, from any holder or the source.
// `from` alone: one copy less.
struct PlanStep {
  TableUid table;
  ShardIndex shard;
  std::optional<NodeId> from;
  std::optional<NodeId> to;
  PlanGoal goal = PlanGoal::kReplication;
  std::string reason;       // for people
  std::uint64_t bytes = 0;  // that `to` pulls
  Tier from_tier = Tier::kDram, to_tier = Tier::kDram;
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

// In the order in which to carry them out: by goal. A shard may be in several steps.
using Plan = std::vector<PlanStep>;

struct PlanResult {
  Plan plan;
  std::uint64_t steps_later = 0;   // beyond PlanLimits::bytes
  std::vector<std::string> unmet;  // what is wanted and cannot be, for people
  // Highest load of a node: now, after all steps, and what no placement beats: total load over all
  // nodes, or the hottest shard in as many copies as it may have.
  double load_now = 0, load_after = 0, load_bound = 0;
};

PlanResult MakePlan(const PoolView& view, const PlanLimits& limits = {});

// A new table, or one that is still Loading: every copy that the only table of `view` lacks, in
// order of (shard, node). ResourceExhausted: it does not fit; names the table's bytes, what each
// node has free, and the next step. InvalidArgument: more replicas than max_nodes allows.
absl::StatusOr<Plan> PlaceTable(const PoolView& view, const PlanLimits& limits = {});

// The same where it may be fewer copies: as many of every shard as find a place, at least one.
struct PartPlan {
  Plan plan;
  std::string
      unmet;  // how many copies have no place, what is missing and what to do; empty: all do
};
absl::StatusOr<PartPlan> PlaceWhatFits(const PoolView& view, const PlanLimits& limits = {});

// The failure domain that counts for a node.
std::string DomainOf(const NodeId& id, const std::string& failure_domain);

}  // namespace engram::placement
