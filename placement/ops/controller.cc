#include "placement/ops/controller.h"

#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"
#include "placement/ops/ops.h"

namespace engram::placement {

absl::Status Core::Commit(Change change) {
  if (change.nothing()) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<const MapDelta>> delta = registry->Commit(std::move(change));
  if (delta.ok()) {
    changed = true;
    if (*delta != nullptr) actions.push_back(MapChanged{*std::move(delta)});
    return absl::OkStatus();
  }
  ++counters.commits_failed;
  SayLine(absl::StrCat("a change was not stored: ", delta.status().message()));
  if (absl::IsAborted(delta.status()) || absl::IsUnknown(delta.status())) {
    actions.push_back(Deposed{delta.status()});
  }
  return delta.status();
}

void Core::Send(LinkId link, ControllerToNode message) {
  actions.push_back(SendToNode{link, std::move(message)});
}

NodeContact* Core::Reachable(const NodeId& node) {
  const NodeRecord* record = state().FindNode(node);
  const auto it = contacts.find(node);
  if (record == nullptr || !record->alive || it == contacts.end() || !it->second.link) {
    return nullptr;
  }
  return &it->second;
}

std::uint64_t Core::SendCommand(const NodeId& node, SentCommand sent,
                                std::variant<LoadReplicas, RetireReplicas, InspectSource> body) {
  const NodeContact* contact = Reachable(node);
  // Unique across restarts: the token is new at each of them.
  const std::uint64_t id = (state().token.value() << 32) + ++last_command;
  sent.node = node;
  commands[id] = std::move(sent);
  Send(*contact->link,
       Command{id, state().FindNode(node)->incarnation, state().token, std::move(body)});
  return id;
}

absl::StatusOr<TablePlaces> Core::PlanFor(const TableRecord& table, const ShardLayout& layout,
                                          const std::vector<MapChunk>& chunks) {
  return CountPlan([&] { return PlaceTable(state(), table, layout, chunks); });
}

std::string RequestKey(const CallerId& caller) {
  if (caller.request_id.empty()) return {};
  return absl::StrCat(caller.tenant, "/", caller.client, "/", caller.request_id);
}

namespace {

struct Dispatch {
  Core& core;

  void operator()(const LinkOpened& opened) { core.silent[opened.link] = core.now; }
  void operator()(const NodeSaid& said) {
    if (const auto* hello = std::get_if<NodeHello>(&said.message)) {
      core.silent.erase(said.link);
      RegisterNode(core, said.link, *hello);
    } else if (const auto* heartbeat = std::get_if<NodeHeartbeat>(&said.message)) {
      Heartbeat(core, said.link, *heartbeat);
    } else {
      CommandAnswered(core, said.link, std::get<CommandDone>(said.message));
    }
  }
  void operator()(const LinkBroke& broke) { LinkEnded(core, broke.link); }
  void operator()(const LoadAsked& asked) { LoadTable(core, asked.call, asked.request); }
  void operator()(const DeleteAsked& asked) { DeleteTable(core, asked.call, asked.request); }
  void operator()(const AliasAsked& asked) { SetAlias(core, asked.call, asked.request); }
  void operator()(const IntentAsked& asked) { SetNodeIntent(core, asked.call, asked.request); }
  void operator()(const MoveAsked& asked) { MoveShard(core, asked.call, asked.request); }
  void operator()(const TenantAsked& asked) { SetTenant(core, asked.call, asked.request); }
  void operator()(const Tick&) { core.changed = true; }
};

void RunDuties(Core& core) {
  core.changed = false;
  WatchLiveness(core);
  FailTables(core);
  GiveUpLoads(core);
  ReplaceLost(core);
  EvacuateNodes(core);
  Rebalance(core);
  DriveMoves(core);
  DriveLoading(core);
  CommitReady(core);
  DriveRetiring(core);
  TellPolicies(core);
}

}  // namespace

Controller::Controller(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Controller::~Controller() = default;

absl::StatusOr<std::unique_ptr<Controller>> Controller::Open(Instant now, ControllerOptions options,
                                                             StateStore* store, Random* random) {
  absl::StatusOr<std::unique_ptr<Registry>> registry = Registry::Open(store);
  if (!registry.ok()) return registry.status();
  auto core = std::make_unique<Core>();
  core->options = std::move(options);
  core->registry = *std::move(registry);
  core->random = random;
  core->now = now;
  // Nodes have so long from now on to say hello again.
  for (const auto& [id, node] : core->state().nodes) {
    core->contacts[id].heard = now + core->options.rejoin_grace;
    core->contacts[id].live.tiers = node->tiers;
  }
  return std::unique_ptr<Controller>(new Controller(std::move(core)));
}

std::vector<Action> Controller::OnEvent(Instant now, Event event) {
  core_->now = now;
  std::visit(Dispatch{*core_}, event);
  // A duty's change may be another duty's cue; each round moves some table or node forward.
  for (int round = 0; core_->changed && round < 8; ++round) RunDuties(*core_);
  return std::exchange(core_->actions, {});
}

void Controller::Slept(Duration time) {
  for (auto& [node, contact] : core_->contacts) contact.heard += time;
}

const ClusterState& Controller::state() const { return core_->state(); }
std::shared_ptr<const ClusterState> Controller::snapshot() const {
  return core_->registry->snapshot();
}
const Counters& Controller::counters() const { return core_->counters; }

}  // namespace engram::placement
