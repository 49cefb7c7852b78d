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
    for (const char* name : {"node-0", "node-1"}) {
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
    world_.After(3s, [this] { Trouble(); });
    world_.At(trouble_until_, [this] { Heal(); });
    world_.RunUntil(start + kTrouble + kQuiet);
    if (world_.failures().empty()) CheckHealed();
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
    for (const auto& [uid, table] : controller_->controller()->state().tables) {
      if (table->record.state == TableState::kDeleting) {
        world_.Fail("table " + table->record.name.Full() + " is still being deleted");
      }
    }
  }

  const ScenarioOptions options_;
  World world_;
  Cluster cluster_;
  std::unique_ptr<SimController> controller_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  Instant trouble_until_{};
  std::uint64_t loads_ = 0;
};

}  // namespace

ScenarioOutcome RunScenario(const ScenarioOptions& options) { return Scenario(options).Run(); }

}  // namespace engram::simulation
