#include "tests/simulation/sim_controller.h"

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "placement/state/records.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario

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
      store_(cluster->world, &cluster->store, &cluster->results.store_troubles) {
  cluster_->controllers.push_back(this);
}

void SimController::Start() {
  process_.Start();
  life_ = std::make_unique<Life>();
  placement::ControllerOptions options;
  options.heartbeat_every = 500ms;
  options.dead_after = 2s;
  options.retry_after = 1s;
  options.repair_after = 1500ms;
  options.moves_per_node = 2;
  options.rebalance = !cluster_->calm;
  options.rebalance_every = 2s;
  options.plan_limits.read_bytes_per_second = 150'000;
  options.plan_limits.most_copies = 1;
  options.reads = [this](Instant now, const TableUid& table) {
    return life_ ? life_->heat.Shards(now, table) : std::vector<double>();
  };
  options.unix_ms = [this] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               cluster_->world->now().time_since_epoch())
        .count();
  };
  auto opened =
      placement::Controller::Open(process_.Now(), options, &store_, &cluster_->world->random());
  if (!opened.ok()) {
    cluster_->world->Trace(absl::StrCat(process_.name(), ": ", opened.status().ToString()));
    process_.Crash();
    life_.reset();
    return StartSoon();
  }
  life_->controller = *std::move(opened);
  LearnTables();
  Tick();
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
}

void SimController::LookWhoLeads() {
  if (life_ && cluster_->Leader() != this) Crash();
}

void SimController::Count() {
  if (!life_) return;
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
  const auto actions = life_->controller->OnEvent(process_.Now(), std::move(event));
  for (const placement::Action& action : actions) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
}

// ---- operators ----

void SimController::Load(const TableName& name, const TableSpec& spec, const TableOptions& options,
                         std::uint64_t seed) {
  if (!life_ || process_.stopped()) return;
  placement::LoadRequest request;
  request.caller = {"operator", "", absl::StrCat("load-", name.Full())};
  request.name = name;
  request.spec = spec;
  request.options = options;
  request.source.seed = seed;
  Feed(placement::LoadAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::Delete(const TableName& name) {
  if (!life_ || process_.stopped()) return;
  placement::DeleteRequest request;
  request.caller = {"operator", "", absl::StrCat("delete-", name.Full())};
  request.name = name;
  Feed(placement::DeleteAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::SetIntent(const NodeId& node, placement::NodeIntent intent) {
  if (!life_ || process_.stopped()) return;
  Feed(placement::IntentAsked{placement::CallId(++last_call_),
                              {{"operator", "", ""}, node, intent, false}});
}

void SimController::Revoke(const std::string& client, bool restore) {
  if (!life_ || process_.stopped()) return;
  cluster_->world->Trace(client + (restore ? " is let in again" : " is revoked"));
  placement::TenantRequest request{
      {"operator", "", ""}, "default", placement::ClientRevocation{client, restore}, false};
  Feed(placement::TenantAsked{placement::CallId(++last_call_), std::move(request)});
}

void SimController::Move(const TableName& table, ShardIndex shard, const NodeId& from,
                         const NodeId& to, std::optional<Tier> tier) {
  if (!life_ || process_.stopped()) return;
  Feed(placement::MoveAsked{placement::CallId(++last_call_),
                            {{"operator", "", ""}, table, shard, from, to, false, tier}});
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
    if (process_.life() != life) return;
    Crash();
    StartSoon();
  });
}

void SimController::HearHeat(const placement::HeatReport& report) {
  if (life_) (void)life_->heat.Take(process_.Now(), report);
}

// ---- nodes ----

std::optional<SimController::Link> SimController::Accept(Process* process, SimNode* node) {
  if (!life_) return std::nullopt;
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
  if (!life_) return nullptr;
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
