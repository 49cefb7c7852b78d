#include "placement/plan/planner.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"

namespace engram::placement {
namespace {

constexpr std::uint64_t kSlabSlackShare = 128;
constexpr std::uint64_t kSlabSlackBytes = std::uint64_t{2} << 20;

struct Site {
  NodeId id;
  std::size_t domain = 0;
  std::uint64_t free = 0;
  std::uint64_t table_bytes = 0;
};

// The node that a shard goes to next: one with the fewest bytes of the table, or one of the
// domain with the most room. The first spreads reads; the second finds a plan whenever shards are
// of one size and there is one.
enum class Preference { kBalance, kRoom };

class Planner {
 public:
  explicit Planner(const PlanView& view) : view_(view) {
    std::map<std::string, std::size_t> domains;
    for (const PlanNode& node : view.nodes) {
      const auto [it, fresh] =
          domains.emplace(DomainOf(node.id, node.failure_domain), domains.size());
      sites_.push_back({node.id, it->second, node.free_bytes, node.table_bytes});
    }
    domains_ = domains.size();
    for (const PlanShard& shard : view.shards) {
      if (shard.wanted == 0) continue;
      shards_.push_back({&shard, {}});
      for (const std::string& name : shard.domains_taken) {
        const auto it = domains.find(name);
        if (it != domains.end()) shards_.back().taken.push_back(it->second);
      }
      wanted_bytes_ += shard.bytes * shard.wanted;
      once_bytes_ += shard.bytes;
    }
    // Large ones first: small ones fill the gaps.
    std::stable_sort(shards_.begin(), shards_.end(),
                     [](const Item& a, const Item& b) { return a.shard->bytes > b.shard->bytes; });
  }

  absl::StatusOr<Plan> Run() {
    if (shards_.empty()) return Plan();
    const std::vector<std::size_t> order = NodeOrder();
    const std::size_t limit =
        view_.max_nodes == 0 ? order.size() : std::min<std::size_t>(view_.max_nodes, order.size());
    for (std::size_t count = 1; count <= limit; ++count) {
      const std::span<const std::size_t> chosen(order.data(), count);
      if (Usable(chosen) < wanted_bytes_) continue;
      for (Preference preference : {Preference::kBalance, Preference::kRoom}) {
        Plan plan;
        if (Assign(chosen, preference, &plan)) return Sorted(std::move(plan));
      }
    }
    return DoesNotFit();
  }

 private:
  struct Item {
    const PlanShard* shard;
    std::vector<std::size_t> taken;  // domains
  };

  // Holders of the table first, then by what each adds to the usable room.
  std::vector<std::size_t> NodeOrder() const {
    std::vector<std::size_t> order, rest;
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      (sites_[i].table_bytes > 0 ? order : rest).push_back(i);
    }
    std::vector<std::uint64_t> used(domains_, 0);
    for (std::size_t i : order) used[sites_[i].domain] += sites_[i].free;
    while (!rest.empty()) {
      const auto best = std::max_element(
          rest.begin(), rest.end(),
          [&](std::size_t a, std::size_t b) { return Rank(a, used) < Rank(b, used); });
      used[sites_[*best].domain] += sites_[*best].free;
      order.push_back(*best);
      rest.erase(best);
    }
    return order;
  }

  // Gain of usable bytes, then free bytes, then the least name.
  std::tuple<std::uint64_t, std::uint64_t, std::size_t> Rank(
      std::size_t site, const std::vector<std::uint64_t>& used) const {
    const std::uint64_t before = std::min(used[sites_[site].domain], once_bytes_);
    const std::uint64_t after =
        std::min(used[sites_[site].domain] + sites_[site].free, once_bytes_);
    std::size_t behind = 0;
    for (const Site& other : sites_) behind += other.id > sites_[site].id;
    return {after - before, sites_[site].free, behind};
  }

  // A domain takes at most one copy of each shard.
  std::uint64_t Usable(std::span<const std::size_t> chosen) const {
    std::vector<std::uint64_t> room(domains_, 0);
    for (std::size_t i : chosen) room[sites_[i].domain] += sites_[i].free;
    std::uint64_t sum = 0;
    for (std::uint64_t bytes : room) sum += std::min(bytes, once_bytes_);
    return sum;
  }

  bool Assign(std::span<const std::size_t> chosen, Preference preference, Plan* plan) const {
    std::vector<Site> sites;
    std::vector<std::uint64_t> room(domains_, 0);
    for (std::size_t i : chosen) {
      sites.push_back(sites_[i]);
      room[sites_[i].domain] += sites_[i].free;
    }
    for (const Item& item : shards_) {
      std::vector<std::size_t> taken = item.taken;
      for (std::uint32_t copy = 0; copy < item.shard->wanted; ++copy) {
        Site* best = nullptr;
        for (Site& site : sites) {
          if (site.free < item.shard->bytes) continue;
          if (std::find(taken.begin(), taken.end(), site.domain) != taken.end()) continue;
          if (best == nullptr || Better(site, *best, preference, room)) best = &site;
        }
        if (best == nullptr) return false;
        best->free -= item.shard->bytes;
        room[best->domain] -= item.shard->bytes;
        best->table_bytes += item.shard->bytes;
        taken.push_back(best->domain);
        plan->push_back({item.shard->shard, best->id});
      }
    }
    return true;
  }

  static bool Better(const Site& a, const Site& b, Preference preference,
                     const std::vector<std::uint64_t>& room) {
    if (preference == Preference::kBalance) {
      if (a.table_bytes != b.table_bytes) return a.table_bytes < b.table_bytes;
    } else if (room[a.domain] != room[b.domain]) {
      return room[a.domain] > room[b.domain];
    }
    if (a.free != b.free) return a.free > b.free;
    return a.id < b.id;
  }

  static Plan Sorted(Plan plan) {
    std::sort(plan.begin(), plan.end(), [](const Placement& a, const Placement& b) {
      return std::tie(a.shard, a.node) < std::tie(b.shard, b.node);
    });
    return plan;
  }

  absl::Status DoesNotFit() const {
    std::string free;
    std::size_t shown = 0;
    for (const Site& site : sites_) {
      if (++shown > 8) {
        absl::StrAppend(&free, " and ", sites_.size() - 8, " more");
        break;
      }
      absl::StrAppend(&free, free.empty() ? "" : ", ", site.id.name, " ", RoundSize(site.free));
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "table ", view_.table.Full(), " does not fit: it needs ", RoundSize(wanted_bytes_), " (",
        view_.replicas, view_.replicas == 1 ? " replica" : " replicas in distinct failure domains",
        view_.max_nodes == 0 ? "" : absl::StrCat(", at most ", view_.max_nodes, " nodes"),
        ") and the alive nodes have free: ", free.empty() ? "none is alive" : free,
        "; start more pool nodes, give them more memory, or delete a table"));
  }

  const PlanView& view_;
  std::vector<Site> sites_;
  std::size_t domains_ = 0;
  std::vector<Item> shards_;
  std::uint64_t wanted_bytes_ = 0;
  std::uint64_t once_bytes_ = 0;
};

std::uint64_t FreeBytes(const NodeRecord& node, const NodeLive* live, std::uint64_t assigned) {
  for (const TierCapacity& tier :
       live != nullptr && !live->tiers.empty() ? live->tiers : node.tiers) {
    if (tier.tier != Tier::kDram) continue;
    const std::uint64_t used = std::max(assigned, tier.allocated_bytes);
    const std::uint64_t free = tier.capacity_bytes - std::min(used, tier.capacity_bytes);
    // Nodes allocate in slabs of whole pages: the last page of each may be partly empty.
    return free - std::min(free, free / kSlabSlackShare + kSlabSlackBytes);
  }
  return 0;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanView& view) {
  if (view.max_nodes != 0 && view.max_nodes < view.replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", view.table.Full(), ": ", view.replicas,
                     " replicas need as many nodes, but max_nodes is ", view.max_nodes,
                     "; raise --max-nodes or lower --replicas"));
  }
  return Planner(view).Run();
}

std::string DomainOf(const NodeId& id, const std::string& failure_domain) {
  // The prefixes keep a node's name and a domain's name apart.
  return failure_domain.empty() ? "node/" + id.name : "domain/" + failure_domain;
}

PlanView ViewOf(const ClusterState& state, const TableRecord& table, const ShardLayout& layout,
                const std::vector<MapChunk>& chunks) {
  PlanView view{table.name, {}, {}, table.options.replicas, table.options.max_nodes};
  std::map<NodeId, std::uint64_t> here;
  for (const MapChunk& chunk : chunks) {
    for (std::size_t i = 0; i < chunk.shards.size(); ++i) {
      const ShardIndex shard(static_cast<std::uint32_t>(chunk.chunk * kChunkShards + i));
      const auto& replicas = chunk.shards[i];
      PlanShard item{shard, layout.StoredBytes(shard), 0, {}};
      if (replicas.size() < view.replicas) {
        item.wanted = static_cast<std::uint32_t>(view.replicas - replicas.size());
      }
      for (const MapReplica& replica : replicas) {
        const NodeRecord* node = state.FindNode(replica.node);
        item.domains_taken.push_back(
            DomainOf(replica.node, node == nullptr ? "" : node->failure_domain));
        here[replica.node] += item.bytes;
      }
      view.shards.push_back(std::move(item));
    }
  }
  const std::map<NodeId, std::uint64_t> assigned = state.AssignedBytes();
  for (const auto& [id, node] : state.nodes) {
    if (!node->alive) continue;
    const auto live = state.live.find(id);
    const auto used = assigned.find(id);
    view.nodes.push_back({id, node->failure_domain,
                          FreeBytes(*node, live == state.live.end() ? nullptr : live->second.get(),
                                    used == assigned.end() ? 0 : used->second),
                          here.contains(id) ? here[id] : 0});
  }
  return view;
}

void AddPlacements(const Plan& plan, std::vector<MapChunk>* chunks) {
  for (const Placement& placement : plan) {
    const std::uint32_t shard = placement.shard.value();
    chunks->at(shard / kChunkShards)
        .shards.at(shard % kChunkShards)
        .push_back({placement.node, Tier::kDram, ReplicaState::kLoading});
  }
}

std::vector<MapChunk> EmptyChunks(const TableUid& uid, const ShardLayout& layout) {
  std::vector<MapChunk> chunks;
  for (std::uint32_t first = 0; first < layout.shards(); first += kChunkShards) {
    MapChunk chunk{uid, first / kChunkShards, {}};
    chunk.shards.resize(std::min(kChunkShards, layout.shards() - first));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace engram::placement
