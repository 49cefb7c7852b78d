#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// Of one transaction: see TakeMoves.
constexpr std::size_t kValuesPerCommit = 48;

class MoveDriver {
 public:
  explicit MoveDriver(Core& core)
      : core_(core), before_(core.registry->snapshot()), edits_(*before_) {}

  void Run() {
    for (const auto& [shard, move] : before_->moves) {
      // What only waits for readers to let go costs nobody anything.
      if (StepOf(*before_, *move) == MoveStep::kPulling) Occupy(*move);
    }
    std::erase_if(core_.both_serve_since,
                  [&](const auto& entry) { return !before_->moves.contains(entry.first); });
    std::erase_if(core_.move_notes,
                  [&](const auto& entry) { return !before_->moves.contains(entry.first); });
    for (const auto& [shard, move] : before_->moves) {
      Step(*move);
      if (change_.moves.size() + change_.moves_removed.size() + edited_ >= kValuesPerCommit) break;
    }
    change_.chunks = edits_.Take();
    if (!core_.Commit(std::move(change_)).ok()) return;  // all of it is tried again
    for (const std::string& line : said_) core_.SayLine(line);
    for (const auto& [kind, done] : ended_) {
      ++(done ? core_.counters.moves_done : core_.counters.moves_dropped)[kind];
    }
  }

 private:
  bool Alive(const NodeId& node) const { return before_->IsAlive(node); }

  void Occupy(const MoveRecord& move) {
    ++total_;
    if (Alive(move.from)) ++busy_[move.from];
    if (Alive(move.to) && !move.within_node()) ++busy_[move.to];
  }

  void Step(const MoveRecord& move) {
    const TableEntry* table = before_->FindTable(move.shard.table);
    if (table->record.state != TableState::kReady) return Drop(move, "its table goes away");
    const MapReplica* from = before_->FindReplica(move.shard, move.from);
    const MapReplica* to = before_->FindReplica(move.shard, move.to);
    if (move.within_node()) return Within(move, to);
    if (!move.started) return Begin(move, from, to);
    if (move.to.name.empty()) return Shrink(move, from);
    if (to == nullptr || to->state == ReplicaState::kDraining) {
      return Drop(move, "its target let go of it");
    }
    if (!Alive(move.to)) return TargetDied(move, from, *to);
    if (to->state == ReplicaState::kLoading) return Pulling(move, from);
    Hand(move, from);
  }

  void Begin(const MoveRecord& move, const MapReplica* from, const MapReplica* to) {
    const NodeRecord* source = before_->FindNode(move.from);
    if (to == nullptr && !move.to.name.empty() && !before_->MayReceive(move.to)) {
      return Drop(move, absl::StrCat("node ", move.to.name, " takes no replicas any more"));
    }
    if (!move.from.name.empty() && from == nullptr) {
      return Drop(move, absl::StrCat("node ", move.from.name, " has no copy any more"));
    }
    if (to == nullptr && move.kind == MoveKind::kDrain && source != nullptr && source->alive &&
        !source->draining) {
      return Drop(move, absl::StrCat("node ", move.from.name, " is not drained any more"));
    }
    if (!move.to.name.empty() && core_.Reachable(move.to) == nullptr) return;
    if (!MayBegin(move)) return;
    if (!move.to.name.empty() && to == nullptr) {
      Replicas(move).push_back({move.to, move.to_tier, ReplicaState::kLoading});
      core_.failed_loads.erase({move.to, move.shard});
    }
    SetStarted(move);
  }

  bool MayBegin(const MoveRecord& move) {
    const std::uint32_t most = core_.options.moves_per_node;
    if (total_ >= core_.options.moves_per_pool || busy_[move.to] >= most ||
        (Alive(move.from) && busy_[move.from] >= most)) {
      return false;
    }
    Occupy(move);
    return true;
  }

  void SetStarted(const MoveRecord& move) {
    MoveRecord started = move;
    started.started = true;
    change_.moves.push_back(std::move(started));
    said_.push_back(absl::StrCat(Describe(move), " begins: ", move.reason));
  }

  // To another tier of its node, which serves it from the old one until it does from the new one,
  // and says so.
  void Within(const MoveRecord& move, const MapReplica* copy) {
    if (copy == nullptr || copy->state == ReplicaState::kDraining || !Alive(move.to)) {
      return Drop(move, absl::StrCat("node ", move.to.name, " does not have the copy any more"));
    }
    if (copy->state == ReplicaState::kServing && copy->tier == move.to_tier) return Finish(move);
    if (!move.started) {
      if (!before_->MayReceive(move.to)) {
        return Drop(move, absl::StrCat("node ", move.to.name, " takes no replicas any more"));
      }
      core_.failed_loads.erase({move.to, move.shard});
      if (core_.Reachable(move.to) != nullptr && MayBegin(move)) SetStarted(move);
      return;
    }
    if (HasFailed(core_, move.to, move.shard)) {
      return Drop(move, absl::StrCat("node ", move.to.name, " could not do it in ", kMostAttempts,
                                     " attempts"));
    }
    if (copy->state == ReplicaState::kServing) CommandTierMove(move);
  }

  void CommandTierMove(const MoveRecord& move) {
    NodeContact* contact = core_.Reachable(move.to);
    if (contact == nullptr) return;
    const auto wait = core_.not_before.find({move.to, move.shard});
    if (wait != core_.not_before.end()) {
      if (core_.now < wait->second) return;
      core_.not_before.erase(wait);
    }
    const ShardIndex shard = move.shard.shard;
    if (!contact->tier_moves_sent[move.shard.table].insert(shard).second) return;
    LoadReplicas load{before_->FindTable(move.shard.table)->record, {shard}, move.to_tier};
    core_.SendCommand(move.to, {move.to, move.shard.table, {shard}, SentCommand::Kind::kLoad},
                      std::move(load));
  }

  // One copy less.
  void Shrink(const MoveRecord& move, const MapReplica* from) {
    if (from == nullptr) return Finish(move);
    if (from->state == ReplicaState::kDraining) return;
    if (before_->Servers(move.shard, move.from).empty()) {
      return Drop(move, "no other node serves the shard");
    }
    Leave(move);
  }

  void Pulling(const MoveRecord& move, const MapReplica* from) {
    core_.both_serve_since.erase(move.shard);
    const bool back = move.kind == MoveKind::kRepair && from != nullptr && Alive(move.from) &&
                      from->state == ReplicaState::kServing;
    const bool in_vain = HasFailed(core_, move.to, move.shard);
    if (!back && !in_vain) return;
    SetState(move, move.to, ReplicaState::kDraining);
    const auto note = core_.move_notes.find(move.shard);
    Drop(move, back ? absl::StrCat("node ", move.from.name, " is back")
                    : absl::StrCat("node ", move.to.name, " could not load it",
                                   note == core_.move_notes.end() ? "" : ": ",
                                   note == core_.move_notes.end() ? "" : note->second));
  }

  // Both serve, or the old copy is lost: the old one goes.
  void Hand(const MoveRecord& move, const MapReplica* from) {
    if (from == nullptr) return Finish(move);
    if (from->state == ReplicaState::kDraining) return;
    const Instant since = core_.both_serve_since.try_emplace(move.shard, core_.now).first->second;
    const bool read = from->state == ReplicaState::kServing && Alive(move.from);
    if (read && core_.now - since < core_.options.move_settle) return;
    Leave(move);
  }

  void TargetDied(const MoveRecord& move, const MapReplica* from, const MapReplica& to) {
    core_.both_serve_since.erase(move.shard);
    if (from == nullptr && to.state == ReplicaState::kServing) return Finish(move);
    // What is on its way out stays so: the shard is repaired once the target was dead for long.
    if (from != nullptr && from->state == ReplicaState::kDraining) return;
    Erase(move, move.to);
    Drop(move, absl::StrCat("node ", move.to.name, " died"));
  }

  // On a dead node there is nothing to wait for: should it come back with its memory, its replica
  // is unknown and it is told to retire it.
  void Leave(const MoveRecord& move) {
    if (Alive(move.from)) return SetState(move, move.from, ReplicaState::kDraining);
    Erase(move, move.from);
    Finish(move);
  }

  void Finish(const MoveRecord& move) {
    ForgetCommand(move);
    change_.moves_removed.push_back(move.shard);
    ended_.emplace_back(static_cast<std::size_t>(move.kind), true);
    said_.push_back(absl::StrCat(Describe(move), " is done"));
  }
  void Drop(const MoveRecord& move, const std::string& why) {
    ForgetCommand(move);
    change_.moves_removed.push_back(move.shard);
    ended_.emplace_back(static_cast<std::size_t>(move.kind), false);
    said_.push_back(absl::StrCat(Describe(move), " is dropped: ", why));
  }

  void ForgetCommand(const MoveRecord& move) {
    const auto contact = core_.contacts.find(move.to);
    if (contact == core_.contacts.end()) return;
    contact->second.tier_moves_sent[move.shard.table].erase(move.shard.shard);
  }

  std::vector<MapReplica>& Replicas(const MoveRecord& move) {
    ++edited_;
    return edits_.Replicas(move.shard);
  }
  void SetState(const MoveRecord& move, const NodeId& node, ReplicaState state) {
    for (MapReplica& replica : Replicas(move)) {
      if (replica.node == node) replica.state = state;
    }
  }
  void Erase(const MoveRecord& move, const NodeId& node) {
    std::erase_if(Replicas(move), [&](const MapReplica& one) { return one.node == node; });
  }
  std::string Describe(const MoveRecord& move) const {
    return absl::StrCat("move of shard ", move.shard.shard.value(), " of table ",
                        before_->FindTable(move.shard.table)->record.name.Full(), " from \"",
                        move.from.name, "\" to \"", move.to.name, "\"",
                        move.within_node() ? " in " : "",
                        move.within_node() ? std::string(Name(move.to_tier)) : "");
  }

  Core& core_;
  const std::shared_ptr<const ClusterState> before_;
  ChunkEdits edits_;
  std::size_t edited_ = 0;  // at least the chunks edited
  Change change_;
  std::uint32_t total_ = 0;
  std::map<NodeId, std::uint32_t> busy_;  // pulls that a node gives or takes
  std::vector<std::string> said_;
  std::vector<std::pair<std::size_t, bool>> ended_;  // kind, done
};

}  // namespace

void DriveMoves(Core& core) {
  if (!core.state().moves.empty()) MoveDriver(core).Run();
}

}  // namespace engram::placement
