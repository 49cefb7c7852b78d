#include "placement/ops/places.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/settings/units.h"
#include "placement/plan/planner.h"

namespace engram::placement {
namespace {

// A shard that lacks a place, and how urgent it is.
struct Wanting {
  std::uint64_t served = 0;  // replicas on alive nodes that stay
  MoveRecord move;
  Tier like = Tier::kDram;  // of the copy that goes, or of another
  bool needs_place = true;
};

// Copies of a table that have no place.
struct Unplaced {
  std::uint64_t copies = 0, bytes = 0;
  bool full = false;  // some node lacks nothing but room
};

class Evacuator {
 public:
  Evacuator(const ClusterState& state, const std::set<NodeId>& leaving, std::size_t limit)
      : state_(state), leaving_(leaving), limit_(limit) {}

  Evacuation Run() {
    for (const auto& [uid, table] : state_.tables) {
      if (table->record.state == TableState::kReady) Look(*table);
    }
    if (!wanting_.empty()) PlaceAll();
    for (const auto& [uid, table] : state_.tables) {
      if (table->record.state == TableState::kLoading) Await(*table);
    }
    for (const auto& [uid, unplaced] : unplaced_) out_.unmet[uid] = Unmet(uid, unplaced);
    return std::move(out_);
  }

 private:
  void PlaceAll() {
    std::stable_sort(wanting_.begin(), wanting_.end(),
                     [](const Wanting& a, const Wanting& b) { return a.served < b.served; });
    free_ = state_.RoomForMoves();
    std::erase_if(free_, [&](const auto& entry) { return leaving_.contains(entry.first.first); });
    for (Wanting& one : wanting_) Place(one);
  }

  void Look(const TableEntry& table) {
    const std::uint32_t copies = table.record.options.replicas;
    for (const auto& chunk : table.chunks) {
      const ReplicaCounts& counts = chunk->counts;
      if (counts.fewest >= copies && leaving_.empty()) continue;
      for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
        const auto index = static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i);
        LookAt({table.record.uid, ShardIndex(index)}, chunk->map.shards[i], copies);
      }
    }
  }

  // Its replicas move once they are whole.
  void Await(const TableEntry& table) {
    for (const auto& chunk : table.chunks) {
      for (const auto& replicas : chunk->map.shards) {
        for (const MapReplica& replica : replicas) {
          if (!leaving_.contains(replica.node) || out_.waiting.contains(replica.node)) continue;
          if (replica.state == ReplicaState::kDraining) continue;
          out_.waiting[replica.node] =
              absl::StrCat("waits: table ", table.record.name.Full(),
                           " is being loaded there too; its shards leave once it is Ready");
        }
      }
    }
  }

  void LookAt(const ShardKey& shard, const std::vector<MapReplica>& replicas,
              std::uint32_t copies) {
    if (state_.moves.contains(shard)) return;
    Wanting one;
    one.move.shard = shard;
    std::uint32_t staying = 0;
    bool from_dead = false;
    for (const MapReplica& replica : replicas) {
      if (replica.state == ReplicaState::kDraining) continue;
      const bool alive = state_.IsAlive(replica.node);
      if (!leaving_.contains(replica.node)) {
        ++staying;
        if (one.move.from.name.empty()) one.like = replica.tier;
        one.served += alive && replica.state == ReplicaState::kServing;
      } else if (one.move.from.name.empty() || (!alive && !from_dead)) {
        one.move.from = replica.node;
        one.like = replica.tier;
        from_dead = !alive;
      }
    }
    const bool leaves = !one.move.from.name.empty();
    if (!leaves && staying >= copies) return;
    one.needs_place = staying < copies;
    one.move.kind = leaves && !from_dead ? MoveKind::kDrain : MoveKind::kRepair;
    one.move.reason = !leaves     ? absl::StrCat("it has ", staying, " of ", copies, " copies")
                      : from_dead ? absl::StrCat("node ", one.move.from.name, " is dead")
                                  : absl::StrCat("node ", one.move.from.name, " is drained");
    wanting_.push_back(std::move(one));
  }

  void Place(Wanting& one) {
    if (out_.moves.size() >= limit_) {
      ++out_.more;
      return;
    }
    if (one.needs_place) {
      bool full = false;
      const std::optional<TierOfNode> to = Choose(one, &full);
      if (!to) {
        ++out_.unplaced;
        Unplaced& of_table = unplaced_[one.move.shard.table];
        ++of_table.copies;
        of_table.bytes += BytesOf(one.move.shard);
        of_table.full |= full;
        out_.waiting.try_emplace(one.move.from, WhyWaits(one.move.shard, full));
        return;
      }
      one.move.to = to->first;
      one.move.to_tier = to->second;
      free_[*to] -= BytesOf(one.move.shard);
      held_[one.move.shard.table][to->first] += BytesOf(one.move.shard);
    }
    out_.moves.push_back(std::move(one.move));
  }

  std::string WhyWaits(const ShardKey& shard, bool full) const {
    const std::string size = RoundSize(BytesOf(shard));
    return absl::StrCat(
        "waits: shard ", shard.shard.value(), " of table ",
        state_.FindTable(shard.table)->record.name.Full(),
        full ? absl::StrCat(" needs ", size,
                            ", and no node that may have it has so much free; start "
                            "one, or delete a table")
             : absl::StrCat(" needs a node in a failure domain without a copy of it, with ", size,
                            " free; start one, or uncordon one"));
  }

  std::string Unmet(const TableUid& uid, const Unplaced& unplaced) const {
    const TableOptions& options = state_.FindTable(uid)->record.options;
    const auto append = [](std::string* out, Tier tier) { out->append(Name(tier)); };
    return absl::StrCat(
        unplaced.copies, unplaced.copies == 1 ? " copy, " : " copies, ", RoundSize(unplaced.bytes),
        options.tiers.empty() ? "" : " of ", absl::StrJoin(options.tiers, " or ", append),
        unplaced.full ? ", have no place: no node that may have them has so much free; start one, "
                        "give one more memory, or delete a table"
                      : ", have no place: no alive node is in a failure domain without a copy of "
                        "theirs; start one in another domain, or uncordon one");
  }

  // `full`: where there is none, some node lacks nothing but room.
  std::optional<TierOfNode> Choose(const Wanting& wanting, bool* full) {
    const MoveRecord& move = wanting.move;
    const TableEntry& table = *state_.FindTable(move.shard.table);
    const std::map<NodeId, std::uint64_t>& held = Held(table);
    std::set<std::string> taken;
    for (const MapReplica& replica : table.Replicas(move.shard.shard)) {
      if (!leaving_.contains(replica.node)) taken.insert(DomainIn(state_, replica.node));
    }
    const std::uint32_t most = table.record.options.max_nodes;
    std::optional<TierOfNode> best;
    for (const auto& [place, free] : free_) {
      const auto& [node, tier] = place;
      if (taken.contains(DomainIn(state_, node))) continue;
      if (!table.record.options.MayUse(tier)) continue;
      if (state_.FindReplica(move.shard, node) != nullptr) continue;
      if (most != 0 && held.size() >= most && !held.contains(node)) continue;
      if (free < BytesOf(move.shard)) {
        *full = true;
        continue;
      }
      if (!best || Better(held, wanting.like, place, *best)) best = place;
    }
    return best;
  }

  // In the tier of the copy that goes; else the fastest.
  bool Better(const std::map<NodeId, std::uint64_t>& held, Tier like, const TierOfNode& a,
              const TierOfNode& b) const {
    if (a.second != b.second) {
      if (a.second == like || b.second == like) return a.second == like;
      return a.second < b.second;
    }
    const auto in_a = held.find(a.first), in_b = held.find(b.first);
    if ((in_a == held.end()) != (in_b == held.end())) return in_a != held.end();
    if (in_a != held.end() && in_a->second != in_b->second) return in_a->second < in_b->second;
    if (free_.at(a) != free_.at(b)) return free_.at(a) > free_.at(b);
    return a < b;
  }

  // Bytes of the table on the nodes that stay.
  const std::map<NodeId, std::uint64_t>& Held(const TableEntry& table) {
    const auto [it, fresh] = held_.try_emplace(table.record.uid);
    if (!fresh) return it->second;
    for (const auto& chunk : table.chunks) {
      for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
        const auto index = static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i);
        for (const MapReplica& replica : chunk->map.shards[i]) {
          if (leaving_.contains(replica.node)) continue;
          it->second[replica.node] += table.layout->StoredBytes(ShardIndex(index));
        }
      }
    }
    return it->second;
  }

  std::uint64_t BytesOf(const ShardKey& shard) const {
    return state_.FindTable(shard.table)->layout->StoredBytes(shard.shard);
  }

  const ClusterState& state_;
  const std::set<NodeId>& leaving_;
  const std::size_t limit_;
  std::vector<Wanting> wanting_;
  std::map<TierOfNode, std::uint64_t> free_;
  std::map<TableUid, std::map<NodeId, std::uint64_t>> held_;
  std::map<TableUid, Unplaced> unplaced_;
  Evacuation out_;
};

}  // namespace

Evacuation PlanEvacuation(const ClusterState& state, const std::set<NodeId>& leaving,
                          std::size_t limit) {
  return Evacuator(state, leaving, limit).Run();
}

std::string DomainIn(const ClusterState& state, const NodeId& node) {
  const NodeRecord* record = state.FindNode(node);
  return DomainOf(node, record == nullptr ? std::string() : record->failure_domain);
}

}  // namespace engram::placement
