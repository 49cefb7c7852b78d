#include "tests/simulation/scenario.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_client.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario

constexpr Duration kLease = 2s;          // and a margin of 1.02 s
constexpr std::uint64_t kRate = 30'000;  // clocks are at most 3 % off: together within the margin
constexpr Duration kQuiet = 14s;
constexpr Duration kElection = 6s;  // and until the nodes have found who was elected
// Never at the instant of a timer: a controller in doubt ends at the end of its instant.
constexpr Duration kCheckEvery = 300ms + 13ns;

class Scenario {
 public:
  explicit Scenario(const ScenarioOptions& options)
      : options_(options), world_(options.seed), choices_(~options.seed) {
    cluster_.world = &world_;
    cluster_.rules = options.rules;
    cluster_.hung_releases = options.hung_releases;
    if (options.lost_updates) cluster_.updates_lost_until = world_.now() + options.trouble;
    const auto few = [&](std::uint64_t bound) {
      return std::min(choices_.Below(bound), choices_.Below(bound));
    };
    const std::size_t nodes = 2 + few(11), clients = 1 + few(6), tables = 1 + few(3);
    node_count_ = options.nodes != 0 ? options.nodes : nodes;
    const std::size_t client_count = options.clients != 0 ? options.clients : clients;
    const bool elects = choices_.Below(2) == 0;
    cluster_.elects = options.elects.value_or(elects);
    cluster_.most_copies = 1 + static_cast<std::uint32_t>(choices_.Below(3));
    // One node may go without a replica having nowhere to be.
    tables_ = std::min(options.tables != 0 ? options.tables : tables, node_count_ - 1);
    for (const char* name : {"controller-0", "controller-1"}) {
      controllers_.push_back(std::make_unique<SimController>(&cluster_, name, Rate()));
    }
    for (std::size_t i = 0; i < node_count_; ++i) {
      const std::string id = absl::StrCat("node-", i);
      nodes_.push_back(std::make_unique<SimNode>(&cluster_, id, id, Rate(), kLease));
      seconds_.push_back(std::make_unique<SimNode>(&cluster_, id, id + "-again", Rate(), kLease));
    }
    for (std::size_t i = 0; i < client_count; ++i) {
      std::optional<FabricKind> forced;
      if (world_.Chance(30)) forced = FabricKind::kOfi;
      clients_.push_back(
          std::make_unique<SimClient>(&cluster_, absl::StrCat("client-", i), Rate(), forced));
    }
  }

  ScenarioOutcome Run() {
    const Instant start = world_.now();
    trouble_until_ = start + options_.trouble;
    for (auto& controller : controllers_) {
      if (cluster_.elects || controller == controllers_.front()) controller->Start();
    }
    for (auto& node : nodes_) node->Start();
    for (auto& client : clients_) client->Start();
    world_.After(500ms, [this] { Operate(); });
    world_.After(4s, [this] { Rearrange(); });
    world_.After(3s, [this] { MakeTrouble(); });
    world_.After(kCheckEvery, [this] { LookAtLeader(); });
    world_.At(trouble_until_, [this] { Heal(); });
    world_.RunUntil(trouble_until_ + kQuiet + (cluster_.elects ? kElection : Duration(0)));
    if (world_.failures().empty()) CheckHealed();
    for (auto& controller : controllers_) controller->Count();
    return {world_.failures(), cluster_.results};
  }

 private:
  std::int64_t Rate() {
    return static_cast<std::int64_t>(world_.Below(2 * kRate)) - static_cast<std::int64_t>(kRate);
  }
  Duration Choose(Duration from, Duration to) {
    return from + Duration(choices_.Below(static_cast<std::uint64_t>((to - from).count())));
  }
  bool Drawn(Trouble trouble) const { return (options_.drawn & Only(trouble)) != 0; }
  bool CarriedOut(Trouble trouble) const {
    return Drawn(trouble) && (options_.carried_out & Only(trouble)) != 0;
  }

  // The process of a node that lives; the first one where both do, or none.
  SimNode* Living(std::size_t node) const {
    SimNode* const first = nodes_[node].get();
    SimNode* const second = seconds_[node].get();
    return !first->process().alive() && second->process().alive() ? second : first;
  }

  // ---- what the operator does ----

  // Keeps some tables in the pool and deletes one of them now and then, often just before a client
  // is stopped.
  void Operate() {
    world_.After(Choose(500ms, 3s), [this] { Operate(); });
    const bool stop = choices_.Below(100) < 60;
    const std::uint64_t which = choices_.Below(1'000), whom = choices_.Below(clients_.size());
    const bool alias = choices_.Below(100) < 30;
    const Duration wait = Choose(0ms, 300ms), length = Choose(3500ms, 6s);
    SimController* controller = cluster_.AnyController();
    if (controller == nullptr) return;
    std::vector<const TableRecord*> ready;
    std::size_t tables = 0;
    for (const auto& [uid, table] : controller->controller()->state().tables) {
      const TableState state = table->record.state;
      if (state == TableState::kReady) ready.push_back(&table->record);
      if (state == TableState::kReady || state == TableState::kLoading) ++tables;
    }
    if (tables < tables_) return Load(controller);
    if (ready.empty() || world_.now() >= trouble_until_) return;
    const TableName name = ready[which % ready.size()]->name;
    const bool named = !ready[which % ready.size()]->aliases.empty();
    if (alias && CarriedOut(Trouble::kAlias)) controller->SetAlias(name.name, name.version);
    if (!CarriedOut(Trouble::kDelete)) return;
    if (controller->controller() == nullptr) return;
    // What an alias names cannot be deleted.
    if (named) controller->SetAlias(name.name, "");
    if (stop && CarriedOut(Trouble::kStopClient)) {
      world_.After(wait, [this, whom, length] { StopFor(&clients_[whom]->process(), length); });
    }
    world_.Trace("operator deletes " + name.Full());
    deleted_.insert(name);
    controller->Delete(name);
  }

  // Moves a shard, or drains or cordons a node, or ends that.
  void Rearrange() {
    if (world_.now() >= trouble_until_) return;
    world_.After(Choose(200ms, 2s), [this] { Rearrange(); });
    const NodeId node = nodes_[choices_.Below(nodes_.size())]->id();
    const std::uint64_t kind = choices_.Below(8);
    SimController* controller = cluster_.AnyController();
    if (controller == nullptr) return;
    if (kind < 4) {
      if (!CarriedOut(Trouble::kIntent)) return;
      return controller->SetIntent(node, kind == 0   ? placement::NodeIntent::kDrain
                                         : kind == 1 ? placement::NodeIntent::kCordon
                                                     : placement::NodeIntent::kUncordon);
    }
    if (!CarriedOut(Trouble::kMove)) return;
    for (const auto& [uid, table] : controller->controller()->state().tables) {
      if (table->record.state != TableState::kReady || world_.Chance(40)) continue;
      const ShardIndex shard(static_cast<std::uint32_t>(world_.Below(table->layout->shards())));
      const auto replicas = table->Replicas(shard);
      if (replicas.empty()) continue;
      const MapReplica& copy = replicas[world_.Below(replicas.size())];
      const bool within = world_.Chance(40);
      std::optional<Tier> tier;
      if (within) tier = copy.tier == Tier::kDram ? Tier::kCxl : Tier::kDram;
      return controller->Move(TableName(table->record.name), shard, copy.node,
                              within ? NodeId(copy.node) : node, tier);
    }
  }

  void Load(SimController* controller) {
    TableSpec spec;
    for (std::uint32_t head = 0; head < 4; ++head) spec.columns.push_back({0, 2, head, 64});
    spec.planes = {{"value", DType::kE4M3, 192}};
    spec.addressing.function = "identity";
    spec.addressing.layers = {0};
    TableOptions options;
    options.shard_bytes = kMinShardBytes;
    options.replicas = 1 + static_cast<std::uint32_t>(world_.Below(node_count_ > 2 ? 2 : 1));
    const bool sealed = options_.seals == Seals::kAlways ||
                        (options_.seals == Seals::kAsTheSeedSays && world_.Chance(50));
    options.seal = sealed ? SealKind::kCrc32c : SealKind::kNone;
    const TableName name{"table", absl::StrCat(++loads_)};
    world_.Trace("operator loads " + name.Full());
    controller->Load(name, spec, options, options_.seed * 1'000 + loads_);
  }

  // ---- what goes wrong ----

  void StopFor(Process* process, Duration length) {
    if (!process->alive() || process->stopped()) return;
    world_.Trace(process->name() + " stops");
    process->Stop();
    world_.After(length, [process] { process->Wake(); });
  }

  template <class Program>
  void CrashFor(Program* program, Duration length) {
    program->Crash();
    world_.After(length, [program] {
      if (!program->process().alive()) program->Start();
    });
  }

  void MakeTrouble() {
    if (world_.now() >= trouble_until_) return;
    world_.After(Choose(300ms, 2500ms), [this] { MakeTrouble(); });
    const std::size_t which = choices_.Below(nodes_.size());
    SimNode* node = Living(which);
    SimClient* client = clients_[choices_.Below(clients_.size())].get();
    std::vector<Trouble> drawn;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Trouble::kIntent); ++i) {
      if (Drawn(static_cast<Trouble>(i))) drawn.push_back(static_cast<Trouble>(i));
    }
    const std::uint64_t pick = choices_.Below(1'000);
    const Duration length = Choose(100ms, 6s);
    if (drawn.empty() || !CarriedOut(drawn[pick % drawn.size()])) return;
    const Trouble trouble = drawn[pick % drawn.size()];
    if (trouble == Trouble::kSecondProcess) return StartSecond(which, length);
    Befall(trouble, node, client, length);
  }

  void StartSecond(std::size_t which, Duration length) {
    SimNode* const old = Living(which);
    SimNode* const other = old == nodes_[which].get() ? seconds_[which].get() : nodes_[which].get();
    if (old->state() == nullptr || other->process().alive()) return;
    StopFor(&old->process(), length);
    world_.After(world_.Between(0ms, 500ms), [other] {
      if (!other->process().alive()) other->Start();
    });
  }

  void Befall(Trouble trouble, SimNode* node, SimClient* client, Duration length) {
    SimController* leader = cluster_.Leader();
    switch (trouble) {
      case Trouble::kFlipBit: cluster_.results.flipped += node->FlipBit(); return;
      case Trouble::kCrashNode: return CrashFor(node, world_.Chance(40) ? length / 20 : length / 2);
      case Trouble::kCrashClient: return CrashFor(client, length / 3);
      case Trouble::kCrashController: return CrashLeader(length * 2 / 3);
      case Trouble::kStopClient: return StopFor(&client->process(), length);
      case Trouble::kStopNode: return StopFor(&node->process(), length);
      case Trouble::kStopController:
        if (leader != nullptr) StopFor(&leader->process(), length * 2 / 3);
        return;
      case Trouble::kCutClient: return Cut(client->process(), node->process(), length);
      case Trouble::kCutNode:
        if (leader != nullptr) Cut(node->process(), leader->process(), length);
        return;
      case Trouble::kIsolateClient:
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
          Cut(client->process(), Living(i)->process(), length);
        }
        for (auto& one : controllers_) Cut(client->process(), one->process(), length);
        // It would not hear of a node that starts anew.
        if (CarriedOut(Trouble::kCrashNode) && world_.Chance(50)) {
          world_.After(world_.Between(0ms, 1s),
                       [this, node] { CrashFor(node, world_.Between(20ms, 200ms)); });
        }
        return;
      case Trouble::kResetSessions:
        world_.Trace("streams of " + node->process().name() + " are reset");
        return node->SeverStreams();
      case Trouble::kResetLink:
        world_.Trace(node->process().name() + " loses its controller");
        return node->SeverController();
      case Trouble::kSlowAnswers:
        world_.Trace(node->process().name() + " answers " + client->process().name() + " late");
        if (CarriedOut(Trouble::kCutClient) && world_.Chance(50)) {
          world_.After(world_.Between(0ms, 3s), [this, node, client, length] {
            Cut(client->process(), node->process(), length);
          });
        }
        return world_.Slow(node->process().name(), client->process().name(), world_.now() + length,
                           2s);
      case Trouble::kTakeover: return TakeOver(length * 2 / 3);
      case Trouble::kStore:
        world_.Trace("the store is in trouble");
        for (auto& controller : controllers_) controller->TroubleStore(length / 2);
        return;
      case Trouble::kRevoke: return RevokeFor(client, length);
      case Trouble::kOtherCapacity:
        node->SetPlaces(10 + world_.Below(5));
        return CrashFor(node, length / 4);
      case Trouble::kLateCommands:
        world_.Trace("commands to nodes come again, late");
        cluster_.late_commands_until = world_.now() + length;
        return;
      case Trouble::kSecondProcess:
      case Trouble::kIntent:
      case Trouble::kMove:
      case Trouble::kDelete:
      case Trouble::kAlias: return;  // elsewhere
    }
  }

  void Cut(const Process& a, const Process& b, Duration length) {
    world_.Trace(a.name() + " and " + b.name() + " are cut");
    world_.Cut(a.name(), b.name(), world_.now() + length);
  }

  void CrashLeader(Duration length) {
    SimController* leader = cluster_.Leader();
    if (leader == nullptr) return;
    leader->Crash();
    world_.After(length, [this, leader] {
      if (leader->process().alive()) return;
      if (cluster_.elects || cluster_.Leader() == nullptr) leader->Start();
    });
  }

  // Another one is elected, if it takes long enough.
  void Depose(SimController* leader, Duration length) {
    switch (world_.Below(3)) {
      case 0: return leader->StopInTheMiddle(length);
      case 1:
        world_.Trace(leader->process().name() + " is cut off from the store");
        return leader->CutStore(length);
      default:
        world_.Trace(leader->process().name() + " hears from the store late");
        return leader->SlowStore(length, 3s);
    }
  }

  void RevokeFor(SimClient* client, Duration length) {
    SimController* leader = cluster_.Leader();
    if (leader == nullptr) return;
    ++cluster_.results.revoked;
    leader->Revoke(client->process().name(), false);
    world_.After(length, [this, client] { Restore(*client); });
  }
  void Restore(const SimClient& client) {
    if (SimController* leader = cluster_.Leader()) leader->Revoke(client.name(), true);
  }

  // The election gives the store to the other controller, because the first one is stopped or
  // because it was thought to be. Some time later the first one hears of it.
  void TakeOver(Duration length) {
    SimController* first = cluster_.Leader();
    if (cluster_.elects) return first == nullptr ? void() : Depose(first, length);
    SimController* second =
        first == controllers_[0].get() ? controllers_[1].get() : controllers_[0].get();
    const bool stops = world_.Chance(40);
    if (first != nullptr && stops) StopFor(&first->process(), length);
    world_.After(world_.Between(0ms, 1500ms), [this, first, second, stops, length] {
      if (world_.now() >= trouble_until_ || cluster_.Leader() == second) return;
      if (first == nullptr && cluster_.Leader() != nullptr) return;
      second->Crash();
      second->Start();
      ++cluster_.results.takeovers;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        SimNode* const node = Living(i);
        world_.After(world_.Between(0ms, 800ms), [node] { node->SeverController(); });
        if (!CarriedOut(Trouble::kResetLink)) continue;
        world_.After(world_.Between(800ms, 3s), [node] { node->SeverController(); });
      }
      if (first == nullptr) return;
      const Duration hears = world_.Between(200ms, 4s) + (stops ? length : Duration(0));
      world_.After(hears, [first] { first->LookWhoLeads(); });
    });
  }

  void Heal() {
    world_.Trace("everything heals");
    const auto heal = [](auto& program) {
      program.process().Wake();
      if (!program.process().alive()) program.Start();
    };
    for (auto& controller : controllers_) {
      controller->TroubleStore(0s);
      controller->CutStore(0s);
      controller->SlowStore(0s, 0s);
      controller->Crash();
    }
    cluster_.calm = true;
    for (auto& controller : controllers_) {
      if (cluster_.elects || controller == controllers_.front()) controller->Start();
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      // Where two processes of a node live, one of them must find out.
      nodes_[i]->process().Wake();
      seconds_[i]->process().Wake();
      heal(*Living(i));
    }
    for (auto& client : clients_) heal(*client);
    drained_ = world_.Below(nodes_.size());
    Arrange();
    // What was scheduled before may stop somebody again; a second look is enough.
    world_.After(1s, [this] {
      for (auto& client : clients_) client->process().Wake();
      for (auto& controller : controllers_) controller->process().Wake();
    });
  }

  // Once somebody leads: one node is drained for good, the others take what there is, and every
  // client is let in.
  void Arrange() {
    SimController* leader = cluster_.Leader();
    if (leader == nullptr || leader->process().stopped()) {
      return world_.After(100ms, [this] { Arrange(); });
    }
    for (auto& node : nodes_) leader->SetIntent(node->id(), placement::NodeIntent::kUncordon);
    leader->SetIntent(nodes_[drained_]->id(), placement::NodeIntent::kDrain);
    for (auto& client : clients_) Restore(*client);
  }

  // ---- what must be so in the end ----

  void CheckHealed() {
    for (const auto& client : clients_) {
      if (client->last_whole_read() < world_.now() - 3s) {
        world_.Fail(client->process().name() + " read nothing in the last seconds of quiet");
      }
    }
    if (cluster_.Leader() == nullptr) return world_.Fail("nobody leads after a long quiet");
    for (std::size_t i = 0; i < nodes_.size(); ++i) CheckNode(i);
    CheckServed(cluster_, deleted_);
    CheckArranged(cluster_);
    const SimNode* const drained = Living(drained_);
    if (drained->state() == nullptr || drained->state()->replicas().empty()) {
      ++cluster_.results.drained;
    } else {
      world_.Fail(drained->id().name + " is not empty after its drain");
    }
  }

  void LookAtLeader() {
    if (world_.now() < trouble_until_) world_.After(kCheckEvery, [this] { LookAtLeader(); });
    CheckLeader(cluster_);
  }

  void CheckNode(std::size_t i) {
    const SimNode* const node = Living(i);
    const std::string& name = nodes_[i]->id().name;
    if (nodes_[i]->state() != nullptr && seconds_[i]->state() != nullptr) {
      world_.Fail("two processes of " + name + " live after a long quiet");
    } else if (node->state() == nullptr) {
      world_.Fail(name + " is down after healing");
    } else if (node->state()->retirements_pending() > 0) {
      world_.Fail(name + " is still retiring after a long quiet");
    } else if (!node->MemoryIsRight()) {
      world_.Fail(name + " serves a flipped bit after a long quiet");
    }
  }

  const ScenarioOptions options_;
  World world_;
  Cluster cluster_;
  SeededRandom choices_;  // of operators and troubles, so that leaving one out changes no other
  std::vector<std::unique_ptr<SimController>> controllers_;
  std::vector<std::unique_ptr<SimNode>> nodes_, seconds_;  // a node's processes
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::size_t node_count_ = 0, tables_ = 0;
  std::set<TableName> deleted_;  // or asked to be
  Instant trouble_until_{};
  std::size_t drained_ = 0;
  std::uint64_t loads_ = 0;
};

}  // namespace

const char* const kTroubleNames[kTroubles] = {
    "flip-bit",       "crash-node",      "crash-client",   "crash-controller", "stop-client",
    "stop-node",      "stop-controller", "cut-client",     "cut-node",         "isolate-client",
    "reset-sessions", "reset-link",      "slow-answers",   "takeover",         "store",
    "revoke",         "other-capacity",  "second-process", "late-commands",    "intent",
    "move",           "delete",          "alias"};

ScenarioOutcome RunScenario(const ScenarioOptions& options) { return Scenario(options).Run(); }

}  // namespace engram::simulation
