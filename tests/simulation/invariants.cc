#include "tests/simulation/invariants.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "placement/state/registry.h"
#include "tests/simulation/sim_controller.h"

namespace engram::simulation {
namespace {

using placement::ClusterState;
using placement::TableEntry;

bool Serves(const MapReplica& replica) { return replica.state == ReplicaState::kServing; }

// By its own clock each, whether stopped or not.
void CheckLeases(Cluster& cluster) {
  const auto holders = std::count_if(cluster.controllers.begin(), cluster.controllers.end(),
                                     [](const SimController* one) { return one->HoldsLease(); });
  if (holders > 1) cluster.world->Fail("two controllers hold the lease at one time");
}

bool SameTable(const TableEntry& one, const TableEntry* other) {
  if (other == nullptr || one.record.state != other->record.state ||
      one.record.aliases != other->record.aliases) {
    return false;
  }
  for (std::uint32_t shard = 0; shard < one.layout->shards(); ++shard) {
    const auto a = one.Replicas(ShardIndex(shard)), b = other->Replicas(ShardIndex(shard));
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) return false;
  }
  return true;
}

bool Same(const ClusterState& is, const ClusterState& believed) {
  const bool same_nodes = std::equal(
      is.nodes.begin(), is.nodes.end(), believed.nodes.begin(), believed.nodes.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && *x.second == *y.second; });
  return same_nodes && is.moves.size() == believed.moves.size() &&
         is.tables.size() == believed.tables.size() &&
         std::all_of(is.tables.begin(), is.tables.end(), [&](const auto& entry) {
           return SameTable(*entry.second, believed.FindTable(entry.first));
         });
}

void CountHotCopies(const ClusterState& state, Results* results) {
  std::uint64_t more = 0;
  for (const auto& [uid, table] : state.tables) {
    for (std::uint32_t shard = 0; shard < table->layout->shards(); ++shard) {
      const auto replicas = table->Replicas(ShardIndex(shard));
      const auto serving =
          static_cast<std::uint64_t>(std::count_if(replicas.begin(), replicas.end(), Serves));
      const std::uint64_t wanted = table->record.options.replicas;
      more += std::max(serving, wanted) - wanted;
    }
  }
  results->hot_copies = std::max(results->hot_copies, more);
}

// Nothing comes or goes, and every shard has the copies that it should, or more that were made
// while it was hot.
void CheckCopies(Cluster& cluster, const TableEntry& table) {
  const std::uint32_t least = table.record.options.replicas;
  const std::uint32_t most = std::max(least, cluster.most_copies);
  for (std::uint32_t shard = 0; shard < table.layout->shards(); ++shard) {
    const auto replicas = table.Replicas(ShardIndex(shard));
    const auto serving =
        static_cast<std::uint32_t>(std::count_if(replicas.begin(), replicas.end(), Serves));
    if (serving == replicas.size() && serving >= least && serving <= most) continue;
    return cluster.world->Fail(absl::StrCat(
        "shard ", shard, " of table ", table.record.name.Full(), " has ", replicas.size(),
        " replicas, of which ", serving, " serve; ", least, " to ", most, " are wanted"));
  }
}

}  // namespace

void CheckLeader(Cluster& cluster) {
  CheckLeases(cluster);
  const SimController* leader = cluster.Leader();
  if (leader == nullptr) return;
  placement::MemoryStore copy = cluster.store;
  const auto stored = placement::Registry::Open(&copy);
  ENGRAM_CHECK(stored.ok());
  if (!Same((*stored)->state(), leader->controller()->state())) {
    cluster.world->Fail("the leader believes something else than what is stored");
  }
  CountHotCopies((*stored)->state(), &cluster.results);
}

void CheckServed(Cluster& cluster, const std::set<TableName>& deleted) {
  const ClusterState& state = cluster.Leader()->controller()->state();
  for (const auto& [uid, record] : cluster.ready) {
    if (deleted.contains(record.name)) continue;
    const TableEntry* table = state.FindTable(uid);
    bool lost = table == nullptr || table->record.state != TableState::kReady;
    for (std::uint32_t shard = 0; !lost && shard < table->layout->shards(); ++shard) {
      const auto replicas = table->Replicas(ShardIndex(shard));
      lost = std::none_of(replicas.begin(), replicas.end(), Serves);
    }
    if (!lost) continue;
    ++cluster.results.tables_lost;
    cluster.world->Fail("table " + record.name.Full() + " is lost");
  }
}

void CheckArranged(Cluster& cluster) {
  const ClusterState& state = cluster.Leader()->controller()->state();
  for (const auto& [shard, move] : state.moves) {
    cluster.world->Fail(absl::StrCat("a move is not done after a long quiet: shard ",
                                     shard.shard.value(), " from ", move->from.name, " to ",
                                     move->to.name));
  }
  for (const auto& [uid, table] : state.tables) {
    if (table->record.state == TableState::kReady) CheckCopies(cluster, *table);
    if (table->record.state != TableState::kDeleting) continue;
    cluster.world->Fail("table " + table->record.name.Full() + " is still being deleted");
  }
}

}  // namespace engram::simulation
