#include "absl/strings/str_cat.h"
#include "engram/identity.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

void Refuse(Core& core, LinkId link, absl::Status why) {
  ++core.counters.nodes_refused;
  core.SayLine(absl::StrCat("refused a node: ", why.message()));
  core.Send(link, NodeRefused{why});
  core.actions.push_back(CloseLink{link, std::move(why)});
}

absl::Status CheckHello(const NodeHello& hello) {
  if (!IsIdentityName(hello.node.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node id \"", hello.node.name,
                     "\" is not 1 to 253 letters, digits and \"._-\"; give "
                     "another --node-id"));
  }
  if (hello.process_nonce.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", hello.node.name, " says hello without a process nonce"));
  }
  if (hello.endpoint.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node ", hello.node.name, " says hello without an endpoint; set its --advertise"));
  }
  return absl::OkStatus();
}

// Which incarnation the process gets; 0 = it was replaced and must exit.
Incarnation IncarnationFor(const Core& core, const NodeRecord* known, const NodeHello& hello) {
  const bool same_process = known != nullptr && known->process_nonce == hello.process_nonce;
  if (same_process &&
      (hello.incarnation == Incarnation() || hello.incarnation == known->incarnation)) {
    return known->incarnation;
  }
  if (hello.incarnation == Incarnation()) {
    return Incarnation(core.state().last_incarnation.value() + 1);
  }
  if (known != nullptr && hello.incarnation <= known->incarnation) return Incarnation();
  // The store is younger than the process (restored or lost): the process keeps what it was given.
  return hello.incarnation;
}

// Replicas that the state gives to the node, against those it reports.
void Reconcile(Core& core, const NodeHello& hello, bool new_process, ChunkEdits& edits,
               std::map<TableUid, std::vector<ShardIndex>>& unknown) {
  std::set<ShardKey> reported;
  for (const ReplicaReport& report : hello.replicas) {
    if (report.state != ReplicaState::kRetired) reported.insert(report.shard);
  }
  for (const auto& [uid, table] : core.state().tables) {
    for (const auto& chunk : table->chunks) {
      for (std::size_t i = 0; i < chunk->map.shards.size(); ++i) {
        const ShardKey key{
            uid, ShardIndex(static_cast<std::uint32_t>(chunk->map.chunk * kChunkShards + i))};
        for (const MapReplica& replica : chunk->map.shards[i]) {
          if (replica.node != hello.node || (!new_process && reported.contains(key))) continue;
          // The node has nothing of it: a new process has empty memory.
          std::vector<MapReplica>& replicas = edits.Replicas(key);
          if (replica.state == ReplicaState::kDraining) {
            std::erase_if(replicas, [&](const auto& one) { return one.node == hello.node; });
            break;
          }
          for (MapReplica& one : replicas) {
            if (one.node == hello.node) one.state = ReplicaState::kLoading;
          }
        }
      }
    }
  }
  for (const ReplicaReport& report : hello.replicas) {
    TakeReport(core, hello.node, report, edits, unknown);
  }
}

void Bind(Core& core, LinkId link, const NodeHello& hello, Incarnation incarnation) {
  NodeContact& contact = core.contacts[hello.node];
  if (contact.link && *contact.link != link) {
    core.links.erase(*contact.link);
    core.actions.push_back(CloseLink{
        *contact.link,
        absl::AbortedError(absl::StrCat("node ", hello.node.name, " has opened another stream"))});
  }
  std::erase_if(core.commands, [&](const auto& sent) {
    return sent.second.node == hello.node && sent.second.kind != SentCommand::Kind::kInspect;
  });
  contact.link = link;
  contact.heard = core.now;
  contact.live.tiers = hello.tiers;
  contact.live.last_seen_unix_ms = core.options.unix_ms();
  contact.loads_sent.clear();
  contact.retires_sent.clear();
  contact.tier_moves_sent.clear();
  contact.unwanted.clear();
  contact.full.clear();
  core.links[link] = {hello.node, incarnation};
}

void Welcome(Core& core, LinkId link, const NodeHello& hello) {
  const NodeRecord* known = core.state().FindNode(hello.node);
  const Incarnation incarnation = IncarnationFor(core, known, hello);
  if (incarnation == Incarnation()) {
    return Refuse(core, link,
                  absl::AbortedError(absl::StrCat("this process of node ", hello.node.name,
                                                  " has incarnation ", hello.incarnation.value(),
                                                  " and was replaced by incarnation ",
                                                  known->incarnation.value(), "; it must exit")));
  }
  Change change;
  NodeRecord record{hello.node,
                    incarnation,
                    hello.process_nonce,
                    hello.endpoint,
                    hello.failure_domain,
                    hello.version,
                    hello.tiers,
                    true,
                    core.options.unix_ms()};
  const bool new_process = known == nullptr || known->incarnation != incarnation;
  if (!new_process) record.joined_unix_ms = known->joined_unix_ms;
  if (known != nullptr) {
    record.cordoned = known->cordoned;
    record.draining = known->draining;
  }
  if (known == nullptr || *known != record) change.nodes.push_back(record);
  if (incarnation > core.state().last_incarnation) change.last_incarnation = incarnation;
  ChunkEdits edits(core.state());
  std::map<TableUid, std::vector<ShardIndex>> unknown;
  Reconcile(core, hello, new_process, edits, unknown);
  change.chunks = edits.Take();
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) {
    core.actions.push_back(CloseLink{link, absl::UnavailableError(stored.message())});
    return;
  }
  ++core.counters.nodes_joined;
  core.SayLine(absl::StrCat("node ", hello.node.name, " joined as incarnation ",
                            incarnation.value(), " at ", hello.endpoint));
  Bind(core, link, hello, incarnation);
  TellPoliciesFirst(core, link, hello.node, hello.incarnation != Incarnation());
  core.Send(link, NodeWelcome{incarnation, core.state().token, core.options.heartbeat_every,
                              core.options.dead_after});
  RetireUnknown(core, hello.node, unknown);
}

// Another process of the node that may still be alive.
bool HasRival(const Core& core, const NodeHello& hello) {
  const NodeRecord* known = core.state().FindNode(hello.node);
  const auto contact = core.contacts.find(hello.node);
  return known != nullptr && known->process_nonce != hello.process_nonce &&
         contact != core.contacts.end() && contact->second.link &&
         core.now - contact->second.heard < core.options.dead_after;
}

}  // namespace

void RegisterNode(Core& core, LinkId link, const NodeHello& hello) {
  if (absl::Status valid = CheckHello(hello); !valid.ok()) return Refuse(core, link, valid);
  if (core.links.contains(link) || core.newcomers.contains(link)) {
    return Refuse(core, link,
                  absl::InvalidArgumentError(
                      absl::StrCat("node ", hello.node.name, " says hello twice on one stream")));
  }
  const NodeRecord* known = core.state().FindNode(hello.node);
  const bool replaced = known != nullptr && known->process_nonce != hello.process_nonce &&
                        hello.incarnation != Incarnation() &&
                        hello.incarnation <= known->incarnation;
  if (!replaced && HasRival(core, hello)) {
    core.newcomers[link] = {hello, core.now};
    return;
  }
  Welcome(core, link, hello);
}

void ReconsiderNewcomers(Core& core, const NodeId& node) {
  std::vector<LinkId> waiting;
  for (const auto& [link, newcomer] : core.newcomers) {
    if (newcomer.hello.node == node) waiting.push_back(link);
  }
  for (LinkId link : waiting) {
    const Newcomer newcomer = core.newcomers.at(link);
    if (!HasRival(core, newcomer.hello)) {
      core.newcomers.erase(link);
      Welcome(core, link, newcomer.hello);
      continue;
    }
    // A message that was on its way when its sender died does not count as life.
    const Duration since = core.contacts[node].heard - newcomer.since;
    if (since < core.options.heartbeat_every / 2) continue;
    core.newcomers.erase(link);
    Refuse(core, link,
           absl::AlreadyExistsError(
               absl::StrCat("another process of node ", node.name, " is alive at ",
                            core.state().FindNode(node)->endpoint,
                            "; stop it first, or start this one with another --node-id")));
  }
}

}  // namespace engram::placement
