#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_client.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario

constexpr Duration kLease = 2s;          // and a margin of 1.02 s
constexpr std::uint64_t kRate = 30'000;  // clocks are at most 3 % off: together within the margin
constexpr Duration kTrouble = 24s;
constexpr Duration kQuiet = 14s;
constexpr std::size_t kTables = 2;

class Scenario {
 public:
  explicit Scenario(const ScenarioOptions& options) : options_(options), world_(options.seed) {
    cluster_.world = &world_;
    cluster_.switches = options.switches;
    controller_ = std::make_unique<SimController>(&cluster_, Rate());
    for (const char* name : {"node-0", "node-1", "node-2"}) {
      nodes_.push_back(std::make_unique<SimNode>(&cluster_, name, Rate(), kLease));
    }
    for (const char* name : {"client-0", "client-1"}) {
      std::optional<FabricKind> forced;
      if (world_.Chance(30)) forced = FabricKind::kOfi;
      clients_.push_back(std::make_unique<SimClient>(&cluster_, name, Rate(), forced));
    }
  }

  ScenarioOutcome Run() {
    const Instant start = world_.now();
    trouble_until_ = start + kTrouble;
    controller_->Start();
    for (auto& node : nodes_) node->Start();
    for (auto& client : clients_) client->Start();
    world_.After(500ms, [this] { Operate(); });
    world_.After(4s, [this] { Rearrange(); });
    world_.After(3s, [this] { Trouble(); });
    world_.At(trouble_until_, [this] { Heal(); });
    world_.RunUntil(start + kTrouble + kQuiet);
    if (world_.failures().empty()) CheckHealed();
    controller_->Count();
    return {world_.failures(), cluster_.results};
  }

 private:
  std::int64_t Rate() {
    return static_cast<std::int64_t>(world_.Below(2 * kRate)) - static_cast<std::int64_t>(kRate);
  }

  // ---- what the operator does ----

  // Keeps two tables in the pool and deletes one of them now and then, often just before a client
  // is stopped.
  void Operate() {
    world_.After(world_.Between(500ms, 3s), [this] { Operate(); });
    if (controller_->controller() == nullptr) return;
    std::vector<const TableRecord*> ready;
    std::size_t tables = 0;
    for (const auto& [uid, table] : controller_->controller()->state().tables) {
      const TableState state = table->record.state;
      if (state == TableState::kReady) ready.push_back(&table->record);
      if (state == TableState::kReady || state == TableState::kLoading) ++tables;
    }
    if (tables < kTables) return Load();
    if (ready.empty() || world_.now() >= trouble_until_) return;
    const TableName name = ready[world_.Below(ready.size())]->name;
    if (world_.Chance(60)) {
      SimClient* client = clients_[world_.Below(clients_.size())].get();
      world_.After(world_.Between(0ms, 300ms),
                   [this, client] { StopFor(&client->process(), world_.Between(3500ms, 6s)); });
    }
    world_.Trace("operator deletes " + name.Full());
    controller_->Delete(name);
  }

  // Moves a shard, or drains or cordons a node, or ends that.
  void Rearrange() {
    if (world_.now() >= trouble_until_) return;
    world_.After(world_.Between(200ms, 2s), [this] { Rearrange(); });
    if (controller_->controller() == nullptr) return;
    const NodeId node = nodes_[world_.Below(nodes_.size())]->id();
    switch (world_.Below(8)) {
      case 0: return controller_->SetIntent(node, placement::NodeIntent::kDrain);
      case 1: return controller_->SetIntent(node, placement::NodeIntent::kCordon);
      case 2:
      case 3: return controller_->SetIntent(node, placement::NodeIntent::kUncordon);
      default: break;
    }
    for (const auto& [uid, table] : controller_->controller()->state().tables) {
      if (table->record.state != TableState::kReady || world_.Chance(40)) continue;
      const ShardIndex shard(static_cast<std::uint32_t>(world_.Below(table->layout->shards())));
      const auto replicas = table->Replicas(shard);
      if (replicas.empty()) continue;
      const NodeId from = replicas[world_.Below(replicas.size())].node;
      return controller_->Move(TableName(table->record.name), shard, from, node);
    }
  }

  void Load() {
    TableSpec spec;
    for (std::uint32_t head = 0; head < 4; ++head) spec.columns.push_back({0, 2, head, 64});
    spec.planes = {{"value", DType::kE4M3, 192}};
    spec.addressing.function = "identity";
    spec.addressing.layers = {0};
    TableOptions options;
    options.shard_bytes = kMinShardBytes;
    options.replicas = 1 + static_cast<std::uint32_t>(world_.Below(2));
    const bool sealed = options_.seals == Seals::kAlways ||
                        (options_.seals == Seals::kAsTheSeedSays && world_.Chance(50));
    options.seal = sealed ? SealKind::kCrc32c : SealKind::kNone;
    const TableName name{"table", absl::StrCat(++loads_)};
    world_.Trace("operator loads " + name.Full());
    controller_->Load(name, spec, options, options_.seed * 1'000 + loads_);
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

  void Trouble() {
    if (world_.now() >= trouble_until_) return;
    world_.After(world_.Between(300ms, 2500ms), [this] { Trouble(); });
    SimNode* node = nodes_[world_.Below(nodes_.size())].get();
    SimClient* client = clients_[world_.Below(clients_.size())].get();
    if (world_.Chance(15)) {
      cluster_.results.flipped += node->FlipBit();
      return;
    }
    switch (world_.Below(10)) {
      case 0: return CrashFor(node, world_.Between(100ms, 4s));
      case 1: return CrashFor(client, world_.Between(10ms, 2s));
      case 2: return CrashFor(controller_.get(), world_.Between(100ms, 4s));
      case 3:
      case 4: return StopFor(&client->process(), world_.Between(100ms, 6s));
      case 5: return StopFor(&node->process(), world_.Between(100ms, 5s));
      case 6: return StopFor(&controller_->process(), world_.Between(100ms, 4s));
      case 7: return Cut(client->process(), node->process());
      case 8: return Cut(node->process(), controller_->process());
      default:
        world_.Trace("streams of " + node->process().name() + " are reset");
        return node->SeverStreams();
    }
  }

  void Cut(const Process& a, const Process& b) {
    const Duration length = world_.Between(100ms, 6s);
    world_.Trace(a.name() + " and " + b.name() + " are cut");
    world_.Cut(a.name(), b.name(), world_.now() + length);
  }

  void Heal() {
    world_.Trace("everything heals");
    const auto heal = [](auto& program) {
      program.process().Wake();
      if (!program.process().alive()) program.Start();
    };
    heal(*controller_);
    for (auto& node : nodes_) heal(*node);
    // One node is drained for good, the others take what there is.
    drained_ = nodes_[world_.Below(nodes_.size())].get();
    for (auto& node : nodes_) controller_->SetIntent(node->id(), placement::NodeIntent::kUncordon);
    controller_->SetIntent(drained_->id(), placement::NodeIntent::kDrain);
    for (auto& client : clients_) heal(*client);
    // What was scheduled before may stop somebody again; a second look is enough.
    world_.After(1s, [this] {
      for (auto& client : clients_) client->process().Wake();
    });
  }

  // ---- what must be so in the end ----

  void CheckHealed() {
    for (const auto& client : clients_) {
      if (client->last_whole_read() < world_.now() - 3s) {
        world_.Fail(client->process().name() + " read nothing in the last seconds of quiet");
      }
    }
    for (const auto& node : nodes_) {
      if (node->state() == nullptr) {
        world_.Fail(node->process().name() + " is down after healing");
      } else if (node->state()->retirements_pending() > 0) {
        world_.Fail(node->process().name() + " is still retiring after a long quiet");
      }
    }
    for (const auto& node : nodes_) {
      if (!node->MemoryIsRight()) {
        world_.Fail(node->process().name() + " serves a flipped bit after a long quiet");
      }
    }
    CheckArranged();
    for (const auto& [uid, table] : controller_->controller()->state().tables) {
      if (table->record.state == TableState::kDeleting) {
        world_.Fail("table " + table->record.name.Full() + " is still being deleted");
      }
    }
  }

  void CheckArranged() {
    const placement::ClusterState& state = controller_->controller()->state();
    for (const auto& [shard, move] : state.moves) {
      world_.Fail(
          "a move is not done after a long quiet: shard " +
          absl::StrCat(shard.shard.value(), " from ", move->from.name, " to ", move->to.name));
    }
    for (const auto& [uid, table] : state.tables) {
      if (table->record.state != TableState::kReady) continue;
      const ReplicaCounts counts = table->counts();
      const std::uint64_t wanted =
          std::uint64_t{table->layout->shards()} * table->record.options.replicas;
      if (counts.serving != wanted || counts.loading + counts.draining != 0) {
        world_.Fail(absl::StrCat("table ", table->record.name.Full(), " has ", counts.serving,
                                 " replicas that serve, ", counts.loading, " that load and ",
                                 counts.draining, " that drain; ", wanted, " are wanted"));
      }
    }
    if (!drained_->state()->replicas().empty()) {
      return world_.Fail(drained_->process().name() + " is not empty after its drain");
    }
    ++cluster_.results.drained;
  }

  using ReplicaCounts = placement::ReplicaCounts;
  const ScenarioOptions options_;
  World world_;
  Cluster cluster_;
  std::unique_ptr<SimController> controller_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  Instant trouble_until_{};
  SimNode* drained_ = nullptr;
  std::uint64_t loads_ = 0;
};

}  // namespace

ScenarioOutcome RunScenario(const ScenarioOptions& options) { return Scenario(options).Run(); }

}  // namespace engram::simulation
