#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "placement/ops/ops.h"
#include "placement/ops/places.h"

namespace engram::placement {
namespace {

// Of one transaction: a move is two values at most, and the store takes 64.
constexpr std::size_t kMovesPerCommit = 25;
// Stored and not finished, in all; a plan that wants more is made again later.
constexpr std::size_t kMostMoves = 4096;

// Bytes that a move may take, by tier: ClusterState::RoomForMoves, looked up once for many moves.
using RoomLeft = std::map<TierOfNode, std::uint64_t>;

std::string WhatMoves(const MoveRecord& move, const TableEntry& table) {
  return absl::StrCat("shard ", move.shard.shard.value(), " of table ", table.record.name.Full());
}

// To another tier of the node that has it.
absl::Status CheckWithin(const ClusterState& state, const MoveRecord& move,
                         const std::string& what) {
  const MapReplica* replica = state.FindReplica(move.shard, move.to);
  if (replica == nullptr || replica->state != ReplicaState::kServing) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", move.to.name, " does not serve ", what,
                     " now; `engramctl get replicas` says how far it is"));
  }
  if (replica->tier != move.to_tier) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("node ", move.to.name, " has its copy of ", what,
                                               " in ", std::string(Name(move.to_tier)),
                                               " already; choose another tier with --tier"));
}

// Against the other copies of the shard.
absl::Status CheckCopies(const Core& core, const MoveRecord& move, const TableEntry& table,
                         const std::string& what) {
  const ClusterState& state = core.state();
  if (state.FindReplica(move.shard, move.to) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("node ", move.to.name, " has a copy of ", what,
                     "; choose another, or name another of its tiers with --tier, without --from"));
  }
  for (const MapReplica& replica : table.Replicas(move.shard.shard)) {
    if (replica.node == move.from || replica.state == ReplicaState::kDraining) continue;
    if (IsLeaving(core, replica.node)) continue;  // that copy goes, too
    if (DomainIn(state, replica.node) != DomainIn(state, move.to)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("node ", move.to.name, " is in the failure domain of node ", replica.node.name,
                     ", which has another copy of ", what, "; choose another"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const MoveRecord& move, const TableEntry& table, const RoomLeft& free,
                       const std::string& what) {
  const std::string tier(Name(move.to_tier));
  if (!table.record.options.MayUse(move.to_tier)) {
    return absl::FailedPreconditionError(absl::StrCat("table ", table.record.name.Full(),
                                                      " was loaded with --tiers that leave out ",
                                                      tier, "; choose another tier"));
  }
  const std::uint64_t bytes = table.layout->StoredBytes(move.shard.shard);
  const auto room = free.find({move.to, move.to_tier});
  if (room == free.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", move.to.name, " has no ", tier,
        " tier that takes new replicas; `engramctl describe node ", move.to.name, "` has those"));
  }
  if (room->second >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "node ", move.to.name, " has ", RoundSize(room->second), " of ", tier, " free and ", what,
      " needs ", RoundSize(bytes), "; choose another, or give it more memory"));
}

absl::Status CheckTarget(const Core& core, const MoveRecord& move, const TableEntry& table,
                         const RoomLeft& free) {
  const ClusterState& state = core.state();
  const std::string what = WhatMoves(move, table);
  if (state.FindNode(move.to) == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "node ", move.to.name, " is unknown; `engramctl get nodes` lists those there are"));
  }
  if (!state.MayReceive(move.to)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", move.to.name, " is dead, cordoned or draining, so ", what,
        " cannot go there; choose another, or `engramctl uncordon node ", move.to.name, "`"));
  }
  if (absl::Status other = move.within_node() ? CheckWithin(state, move, what)
                                              : CheckCopies(core, move, table, what);
      !other.ok()) {
    return other;
  }
  return CheckRoom(move, table, free, what);
}

// The tier of `to` for a copy: the fastest that the table may use and that has room, else the
// fastest that it may use, else dram; CheckTarget says what is wrong with those.
Tier TierFor(const Core& core, const TableEntry& table, ShardIndex shard, const NodeId& to) {
  const RoomLeft free = core.state().RoomForMoves();
  std::optional<Tier> fallback;
  for (const Tier tier : kTiers) {
    const auto room = free.find({to, tier});
    if (room == free.end() || !table.record.options.MayUse(tier)) continue;
    if (room->second >= table.layout->StoredBytes(shard)) return tier;
    if (!fallback) fallback = tier;
  }
  return fallback.value_or(Tier::kDram);
}

// The node that alone has the shard.
absl::StatusOr<NodeId> OnlyHolder(const TableEntry& table, ShardIndex shard) {
  std::vector<NodeId> holders;
  for (const MapReplica& replica : table.Replicas(shard)) {
    if (replica.state != ReplicaState::kDraining) holders.push_back(replica.node);
  }
  if (holders.size() == 1) return holders.front();
  std::string names;
  for (const NodeId& node : holders) absl::StrAppend(&names, names.empty() ? "" : ", ", node.name);
  return absl::InvalidArgumentError(
      absl::StrCat("shard ", shard.value(), " of table ", table.record.name.Full(), " is on ",
                   names.empty() ? "no node" : names, "; say with --from which copy is to move"));
}

absl::StatusOr<MoveRecord> MoveOf(const Core& core, const MoveRequest& request) {
  const TableEntry* table = core.state().FindTable(request.table);
  if (table == nullptr) table = core.state().FindAlias(request.table);
  if (table == nullptr) {
    return absl::NotFoundError(absl::StrCat("table ", request.table.Full(),
                                            " is unknown; `engramctl get tables` lists those "
                                            "there are"));
  }
  MoveRecord move;
  move.shard = {table->record.uid, request.shard};
  move.from = request.from;
  move.to = request.to;
  move.kind = MoveKind::kManual;
  move.reason = "an operator asked for it";
  move.created_unix_ms = core.options.unix_ms();
  if (request.shard.value() >= table->layout->shards()) {
    return absl::NotFoundError(absl::StrCat("table ", table->record.name.Full(), " has ",
                                            table->layout->shards(), " shards; there is no shard ",
                                            request.shard.value()));
  }
  // The same move again is the same answer.
  const auto under_way = core.state().moves.find(move.shard);
  if (under_way != core.state().moves.end() && under_way->second->to == move.to &&
      (!request.tier || under_way->second->to_tier == *request.tier) &&
      (move.from.name.empty() || under_way->second->from == move.from)) {
    return *under_way->second;
  }
  if (move.from.name.empty() && request.tier && core.state().FindReplica(move.shard, move.to)) {
    move.from = move.to;  // the copy that it has goes to another of its tiers
  }
  if (move.from.name.empty()) {
    absl::StatusOr<NodeId> holder = OnlyHolder(*table, request.shard);
    if (!holder.ok()) return holder.status();
    move.from = *holder;
  }
  move.to_tier = request.tier ? *request.tier : TierFor(core, *table, request.shard, request.to);
  if (absl::Status possible = CheckMove(core, move); !possible.ok()) return possible;
  return move;
}

absl::Status CheckMove(const Core& core, const MoveRecord& move, const RoomLeft& free) {
  const ClusterState& state = core.state();
  const TableEntry* table = state.FindTable(move.shard.table);
  if (table == nullptr || table->record.state != TableState::kReady) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table == nullptr ? "of the move" : table->record.name.Full(), " is ",
                     table == nullptr ? "gone" : std::string(Name(table->record.state)),
                     ", and only shards of Ready tables move"));
  }
  const std::uint32_t shard = move.shard.shard.value();
  if (shard >= table->layout->shards() || (move.from.name.empty() && move.to.name.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a move of shard ", shard, " of table ", table->record.name.Full(), " from node \"",
        move.from.name, "\" to \"", move.to.name, "\" makes no sense"));
  }
  const auto under_way = state.moves.find(move.shard);
  if (under_way != state.moves.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", shard, " of table ", table->record.name.Full(), " is moving from \"",
                     under_way->second->from.name, "\" to \"", under_way->second->to.name,
                     "\"; wait until it is there (`engramctl get plans`)"));
  }
  if (!move.from.name.empty()) {
    const MapReplica* from = state.FindReplica(move.shard, move.from);
    if (from == nullptr || from->state == ReplicaState::kDraining) {
      return absl::FailedPreconditionError(absl::StrCat("node ", move.from.name,
                                                        " has no copy of shard ", shard,
                                                        " of table ", table->record.name.Full()));
    }
  }
  if (!move.to.name.empty()) return CheckTarget(core, move, *table, free);
  if (!state.Servers(move.shard, move.from).empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no other node serves shard ", shard,
                                                    " of table ", table->record.name.Full(),
                                                    ": its last copy stays"));
}

}  // namespace

bool IsLeaving(const Core& core, const NodeId& node) {
  const NodeRecord* record = core.state().FindNode(node);
  if (record == nullptr || record->draining) return true;
  const auto dead = core.dead_since.find(node);
  return dead != core.dead_since.end() && core.now - dead->second >= core.options.repair_after;
}

bool HasFailed(const Core& core, const NodeId& node, const ShardKey& shard) {
  const auto failed = core.failed_loads.find({node, shard});
  return failed != core.failed_loads.end() && failed->second >= kMostAttempts;
}

absl::Status CheckMove(const Core& core, const MoveRecord& move) {
  return CheckMove(core, move, core.state().RoomForMoves());
}

std::size_t TakeMoves(Core& core, std::vector<MoveRecord> moves) {
  std::size_t taken = 0;
  RoomLeft free = core.state().RoomForMoves();
  for (std::size_t at = 0; at < moves.size();) {
    Change change;
    for (; at < moves.size() && change.moves.size() < kMovesPerCommit; ++at) {
      MoveRecord& move = moves[at];
      const bool twice =
          std::any_of(change.moves.begin(), change.moves.end(),
                      [&](const MoveRecord& one) { return one.shard == move.shard; });
      if (core.state().moves.size() + change.moves.size() >= kMostMoves) break;
      if (twice || !CheckMove(core, move, free).ok()) continue;
      if (!move.to.name.empty()) {
        const TableEntry& table = *core.state().FindTable(move.shard.table);
        free[{move.to, move.to_tier}] -= table.layout->StoredBytes(move.shard.shard);
      }
      move.started = false;
      move.created_unix_ms = core.options.unix_ms();
      change.moves.push_back(std::move(move));
    }
    const std::size_t count = change.moves.size();
    if (count == 0 || !core.Commit(std::move(change)).ok()) return taken;
    taken += count;
  }
  return taken;
}

std::size_t CarryOut(Core& core, const Plan& plan) {
  std::vector<MoveRecord> moves;
  for (const PlanStep& step : plan) {
    MoveRecord& move = moves.emplace_back();
    move.shard = {step.table, step.shard};
    if (step.from) move.from = *step.from;
    if (step.to) move.to = *step.to;
    move.to_tier = step.to_tier;
    move.kind = step.goal == PlanGoal::kReplication ? MoveKind::kRepair
                : step.goal == PlanGoal::kDrain     ? MoveKind::kDrain
                                                    : MoveKind::kBalance;
    move.reason = step.reason;
  }
  return TakeMoves(core, std::move(moves));
}

void MoveShard(Core& core, CallId call, const MoveRequest& request) {
  absl::StatusOr<MoveRecord> move = MoveOf(core, request);
  if (move.ok() && !request.dry_run && !core.state().moves.contains(move->shard)) {
    Change change;
    change.moves.push_back(*move);
    if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) move = stored;
  }
  core.actions.push_back(MoveAnswer{call, std::move(move)});
}

}  // namespace engram::placement
