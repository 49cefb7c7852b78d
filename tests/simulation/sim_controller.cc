#include "tests/simulation/sim_controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "placement/state/records.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario

namespace {

constexpr Duration kLeaderLease = 1s;  // and a margin of 1.01 s

}  // namespace

SimController* Cluster::Leader() {
  const std::string key(placement::kFencingKey);
  const auto stored = store.Get(key);
  if (!stored.ok() || !stored->has_value()) return nullptr;
  const auto token = placement::DecodeNumber(key, (*stored)->value);
  ENGRAM_CHECK(token.ok());
  for (SimController* one : controllers) {
    if (one->controller() != nullptr && one->controller()->state().token.value() == *token) {
      return one;
    }
  }
  return nullptr;
}

SimController* Cluster::AnyController() const {
  std::vector<SimController*> alive, awake;
  for (SimController* one : controllers) {
    if (one->controller() == nullptr) continue;
    alive.push_back(one);
    if (!one->process().stopped()) awake.push_back(one);
  }
  const auto& choice = awake.empty() ? alive : awake;
  if (choice.size() < 2) return choice.empty() ? nullptr : choice.front();
  return choice[world->Below(choice.size())];
}

SimController::SimController(Cluster* cluster, std::string name, std::int64_t rate_ppm)
    : cluster_(cluster),
      process_(cluster->world, std::move(name), rate_ppm, cluster->world->Between(0s, 100s)),
      store_(cluster->world, &cluster->store, &cluster->results.store_troubles),
      votes_(cluster->world, &cluster->store, &cluster->results.store_troubles) {
  cluster_->controllers.push_back(this);
}

void SimController::Start() {
  process_.Start();
  life_ = std::make_unique<Life>();
  stop_for_ = {};
  if (cluster_->elects) {
    placement::Election::Options options;
    options.holder = absl::StrCat(process_.name(), "-", ++starts_);
    options.address = process_.name();
    options.lease = kLeaderLease;
    life_->election = std::make_unique<placement::Election>(options, cluster_->rules.controller);
    FeedElection(placement::Election::Tick{});
  } else if (!TakeSeat()) {
    process_.Crash();
    life_.reset();
    return StartSoon();
  }
  Tick();
}

placement::ControllerOptions SimController::Options() {
  placement::ControllerOptions options;
  options.heartbeat_every = 500ms;
  options.dead_after = 2s;
  if (cluster_->elects) options.rejoin_grace = 2 * options.dead_after;
  options.retry_after = 1s;
  options.repair_after = 1500ms;
  options.moves_per_node = 2;
  options.rebalance = !cluster_->calm;
  options.rebalance_every = 2s;
  options.plan_limits.read_bytes_per_second = 150'000;
  options.plan_limits.most_copies = cluster_->most_copies;
  options.reads = [this](Instant now, const TableUid& table) {
    return life_ ? life_->heat.Shards(now, table) : std::vector<double>();
  };
  options.unix_ms = [this] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               cluster_->world->now().time_since_epoch())
        .count();
  };
  return options;
}

// ---- who leads ----

void SimController::FeedElection(const placement::Election::Event& event) {
  for (const auto& action : life_->election->OnEvent(process_.Now(), event)) {
    std::visit([this](const auto& what) { DoElection(what); }, action);
  }
  const std::uint64_t armed = ++life_->armed;
  // While it waits for the store there is nothing that it could do.
  const Instant next = std::max(life_->election->NextTimer(), process_.Now() + 1ms);
  process_.AtLocal(next, [this, armed] {
    if (armed == life_->armed) FeedElection(placement::Election::Tick{});
  });
}

void SimController::AskStore(std::function<placement::Election::Event()> ask) {
  World* const world = cluster_->world;
  const auto way = [world] {
    return world->Chance(4) ? world->Between(5ms, 300ms) : world->Between(100us, 3ms);
  };
  Duration back = way();
  if (world->now() < slow_until_) back += world->Between(0ms, slow_);
  world->After(way(), [this, back, life = process_.life(), ask = std::move(ask)] {
    const placement::Election::Event answer = ask();
    if (process_.alive() && process_.life() == life) {
      process_.After(back, [this, answer] { FeedElection(answer); });
    }
  });
}

void SimController::DoElection(const placement::Election::ReadRecord&) {
  AskStore([this] { return placement::Election::RecordRead{votes_.Get(placement::kLeaderKey)}; });
}

void SimController::DoElection(const placement::Election::WriteRecord& action) {
  AskStore(
      [this, txn = action.txn] { return placement::Election::RecordWritten{votes_.Txn(txn)}; });
}

bool SimController::Leads() {
  if (!life_->election) return true;
  if (!HoldsLease()) {
    if (life_->controller != nullptr) StepDown();
    return false;
  }
  if (life_->controller == nullptr && process_.Now() >= life_->next_try) TakeSeat();
  return life_->controller != nullptr;
}

bool SimController::TakeSeat() {
  life_->next_try = process_.Now() + 500ms;
  auto opened =
      placement::Controller::Open(process_.Now(), Options(), &store_, &cluster_->world->random());
  if (!opened.ok()) {
    cluster_->world->Trace(absl::StrCat(process_.name(), ": ", opened.status().ToString()));
    return false;
  }
  life_->controller = *std::move(opened);
  cluster_->world->Trace(process_.name() + " takes the seat");
  SimController* const before = std::exchange(cluster_->led_last, this);
  cluster_->results.takeovers += before != nullptr && before != this && life_->election != nullptr;
  LearnTables();
  return true;
}

void SimController::StepDown() {
  cluster_->world->Trace(process_.name() + " leads no more");
  Count();
  life_->controller.reset();
  for (auto& [id, node] : life_->nodes) node.stream->Close(&process_);
  for (auto& [id, watcher] : life_->watchers) watcher.stream->Close(&process_);
  life_->nodes.clear();
  life_->watchers.clear();
}

void SimController::Crash() {
  if (!life_) return;
  Count();
  process_.Crash();
  life_.reset();
}

void SimController::LearnTables() {
  for (const auto& [uid, table] : life_->controller->state().tables) {
    cluster_->tables.try_emplace(uid, table->record);
  }
}

void SimController::StartSoon() {
  cluster_->world->After(cluster_->world->Between(50ms, 800ms), [this] {
    if (!process_.alive() && cluster_->Leader() == nullptr) Start();
  });
}

void SimController::TroubleStore(Duration length) {
  store_.TroubleUntil(cluster_->world->now() + length);
  votes_.TroubleUntil(cluster_->world->now() + length);
}

void SimController::CutStore(Duration length) {
  store_.CutUntil(cluster_->world->now() + length);
  votes_.CutUntil(cluster_->world->now() + length);
}

void SimController::SlowStore(Duration length, Duration most) {
  slow_until_ = cluster_->world->now() + length;
  slow_ = most;
}

void SimController::LookWhoLeads() {
  if (life_ && cluster_->Leader() != this) Crash();
}

void SimController::Count() {
  if (controller() == nullptr) return;
  const placement::Counters& counters = life_->controller->counters();
  for (std::uint64_t done : counters.moves_done) cluster_->results.moved += done;
  cluster_->results.rebalanced +=
      counters.moves_done[static_cast<std::size_t>(placement::MoveKind::kBalance)];
  cluster_->results.repaired +=
      counters.moves_done[static_cast<std::size_t>(placement::MoveKind::kRepair)];
}

void SimController::Tick() {
  Feed(placement::Tick{});
  process_.After(200ms, [this] { Tick(); });
}

void SimController::Feed(placement::Event event) {
  if (!Leads()) return;
  auto actions = life_->controller->OnEvent(process_.Now(), std::move(event));
  if (stop_for_ == Duration() || actions.empty()) return CarryOut(actions);
  cluster_->world->Trace(process_.name() + " stops in the middle");
  process_.Stop();
  cluster_->world->After(std::exchange(stop_for_, {}),
                         [this, life = process_.life(), actions = std::move(actions)] {
                           if (process_.life() != life || !life_) return;
                           process_.Wake();
                           if (life_->controller != nullptr) CarryOut(actions);
                         });
}

void SimController::CarryOut(const std::vector<placement::Action>& actions) {
  for (const placement::Action& action : actions) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
}

// ---- operators ----

void SimController::Load(const TableName& name, const TableSpec& spec, const TableOptions& options,
                         std::uint64_t seed) {
  if (!Awake()) return;
  placement::LoadRequest request;
  request.caller = {"operator", "", absl::StrCat("load-", name.Full())};
  request.name = name;
  request.spec = spec;
  request.options = options;
  request.source.seed = seed;
  Feed(placement::LoadAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::Delete(const TableName& name) {
  if (!Awake()) return;
  placement::DeleteRequest request;
  request.caller = {"operator", "", absl::StrCat("delete-", name.Full())};
  request.name = name;
  Feed(placement::DeleteAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::SetIntent(const NodeId& node, placement::NodeIntent intent) {
  if (!Awake()) return;
  Feed(placement::IntentAsked{placement::CallId(++last_call_),
                              {{"operator", "", ""}, node, intent, false}});
}

void SimController::Revoke(const std::string& client, bool restore) {
  if (!Awake()) return;
  cluster_->world->Trace(client + (restore ? " is let in again" : " is revoked"));
  placement::TenantRequest request{
      {"operator", "", ""}, "default", placement::ClientRevocation{client, restore}, false};
  Feed(placement::TenantAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::Move(const TableName& table, ShardIndex shard, const NodeId& from,
                         const NodeId& to, std::optional<Tier> tier) {
  if (!Awake()) return;
  Feed(placement::MoveAsked{placement::CallId(++last_call_),
                            {{"operator", "", ""}, table, shard, from, to, false, tier}});
}

void SimController::SetAlias(const std::string& name, const std::string& version) {
  if (!Awake()) return;
  ++cluster_->results.aliases_set;
  Feed(placement::AliasAsked{placement::CallId(++last_call_),
                             {{"operator", "", ""}, {name, kAlias}, version, false, false}});
}

void SimController::Do(const placement::Answer& action) {
  if (action.table.ok()) {
    cluster_->tables.try_emplace(action.table->uid, *action.table);
  } else {
    cluster_->world->Trace(absl::StrCat("answer: ", action.table.status().ToString()));
  }
}

void SimController::Do(const placement::Say& action) {
  cluster_->world->Trace("controller: " + action.text);
}

void SimController::Do(const placement::Deposed& action) {
  if (cluster_->Leader() == this && !absl::IsUnknown(action.why)) {
    cluster_->world->Fail("the leader was deposed: " + action.why.ToString());
  }
  cluster_->world->Trace(process_.name() + " was deposed: " + action.why.ToString());
  // The events of this life must not find it gone while they run.
  cluster_->world->After(0s, [this, life = process_.life()] {
    if (process_.life() != life || !life_) return;
    if (life_->election) return StepDown();
    Crash();
    StartSoon();
  });
}

void SimController::HearHeat(const placement::HeatReport& report) {
  if (life_) (void)life_->heat.Take(process_.Now(), report);
}

// ---- nodes ----

std::optional<SimController::Link> SimController::Accept(Process* process, SimNode* node) {
  if (controller() == nullptr) return std::nullopt;
  const std::uint64_t id = ++last_link_;
  auto stream = Stream::Connect(cluster_->world, process, &process_);
  stream->OnLost(&process_, [this, id] {
    life_->nodes.erase(id);
    Feed(placement::LinkBroke{placement::LinkId(id)});
  });
  life_->nodes[id] = {stream, node};
  return Link{stream, id};
}

void SimController::HearNode(std::uint64_t link, const NodeToController& message) {
  if (life_->nodes.contains(link)) {
    Feed(placement::NodeSaid{placement::LinkId(link), message});
  }
}

void SimController::Do(const placement::SendToNode& action) {
  const auto it = life_->nodes.find(action.link.value());
  if (it == life_->nodes.end()) return;
  const auto* command = std::get_if<Command>(&action.message);
  if (command != nullptr && cluster_->world->now() < cluster_->late_commands_until) {
    SimNode* const node = it->second.node;
    cluster_->world->After(cluster_->world->Between(500ms, 6s),
                           [node, meant = node->process().life(), command = *command] {
                             node->HearLate(meant, command);
                           });
  }
  it->second.stream->Send(
      &process_, [node = it->second.node, link = action.link.value(), message = action.message] {
        node->HearController(link, message);
      });
}

void SimController::Do(const placement::CloseLink& action) {
  const auto it = life_->nodes.find(action.link.value());
  if (it == life_->nodes.end()) return;
  it->second.stream->Close(&process_);
  life_->nodes.erase(it);
}

// ---- clients ----

std::shared_ptr<Stream> SimController::Watch(Process* client, Epoch from,
                                             std::function<void(const MapDelta&)> deliver) {
  if (controller() == nullptr) return nullptr;
  const std::uint64_t id = ++last_link_;
  auto stream = Stream::Connect(cluster_->world, client, &process_);
  stream->OnLost(&process_, [this, id] { life_->watchers.erase(id); });
  life_->watchers[id] = {stream, deliver};
  const placement::ClusterState& state = life_->controller->state();
  if (from != state.epoch) {
    stream->Send(&process_, [deliver, snapshot = state.Snapshot()] { deliver(snapshot); });
  }
  return stream;
}

void SimController::Do(const placement::MapChanged& action) {
  LearnTables();
  for (auto& [id, watcher] : life_->watchers) {
    watcher.stream->Send(&process_,
                         [deliver = watcher.deliver, delta = action.delta] { deliver(*delta); });
  }
}

}  // namespace engram::simulation
