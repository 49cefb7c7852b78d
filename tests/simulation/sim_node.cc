#include "tests/simulation/sim_node.h"

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_controller.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario
namespace node = poolserver;

SimNode::SimNode(Cluster* cluster, std::string id, std::string process, std::int64_t rate_ppm,
                 Duration lease)
    : cluster_(cluster),
      id_{std::move(id)},
      process_(cluster->world, process, rate_ppm, cluster->world->Between(0s, 100s)),
      endpoint_(process + ":1"),
      lease_(lease) {
  cluster_->by_endpoint[endpoint_] = this;
}

SimNode::~SimNode() = default;

void SimNode::Start() {
  process_.Start();
  node::NodeOptions options;
  options.node = id();
  options.process_nonce = absl::StrCat(process_.name(), "-", ++starts_);
  options.endpoint = endpoint_;
  options.failure_domain = id_.name;
  options.version = "simulated";
  options.lease = lease_;
  // Each start listens on fresh addresses.
  const std::string address =
      cluster_->rules.restarts_are_new ? options.process_nonce : process_.name();
  for (FabricKind kind : {FabricKind::kMapped, FabricKind::kOfi}) {
    PathAddress path;
    path.fabric = kind;
    path.address = address;
    path.one_sided = path.offloaded = true;
    options.paths.push_back(path);
  }
  const std::map<Tier, std::uint64_t> places = Places();
  options.tiers = TiersWith(places);
  // A slice is a shard, and counts as a block of 256 rows: about four a second.
  options.scrub_bytes_per_second = 200'000;
  life_ =
      std::make_unique<Life>(std::move(options), &cluster_->world->random(), cluster_->rules.node);
  life_->memory = std::make_shared<NodeMemory>();
  life_->memory->bytes.resize(places_ * kPlaceBytes);
  cluster_->machines[address] = life_->memory;
  for (std::uint64_t place = places_; place > 0; --place) {
    const Tier tier = place <= places.at(Tier::kDram) ? Tier::kDram : Tier::kCxl;
    life_->free_places[tier].push_back(place - 1);
  }
  JoinController();
  process_.After(cluster_->world->Between(100ms, 2s), [this] { ReadOwnMemory(); });
  if (cluster_->elects) LeaveSilent();
}

void SimNode::Crash() {
  if (!life_) return;
  life_->memory->alive = false;
  for (auto& [key, held] : life_->held) held.pull.reset();
  process_.Crash();
  life_.reset();
}

void SimNode::Feed(node::Event event) {
  const std::uint64_t life = process_.life();
  const std::uint64_t moves = life_->state.counters().tier_moves;
  const std::vector<node::Action> actions = life_->state.OnEvent(process_.Now(), std::move(event));
  cluster_->results.changed_tier += life_->state.counters().tier_moves - moves;
  for (const node::Action& action : actions) {
    std::visit([this](const auto& what) { Do(what); }, action);
    if (!life_ || process_.life() != life) return;  // it exited
  }
  ArmTimer();
}

void SimNode::ArmTimer() {
  const std::optional<Instant> next = life_->state.NextTimer();
  const std::uint64_t armed = ++life_->armed;
  if (!next) return;
  process_.AtLocal(*next, [this, armed] {
    if (armed == life_->armed) Feed(node::Timer{});
  });
}

// ---- the controller ----

void SimNode::JoinController() {
  SimController* controller = cluster_->AnyController();
  auto link = controller == nullptr ? std::nullopt : controller->Accept(&process_, this);
  if (!link) {
    process_.After(cluster_->world->Between(100ms, 500ms), [this] { JoinController(); });
    return;
  }
  life_->controller = controller;
  life_->link_stream = link->stream;
  life_->link = link->id;
  life_->heard = process_.Now();
  life_->link_stream->OnLost(&process_, [this] {
    life_->link_stream.reset();
    Feed(node::ControllerLost{});
    process_.After(cluster_->world->Between(100ms, 500ms), [this] { JoinController(); });
  });
  Feed(node::ControllerConnected{});
}

void SimNode::LeaveSilent() {
  process_.After(500ms, [this] { LeaveSilent(); });
  if (process_.Now() - life_->heard > 2500ms) SeverController();
}

void SimNode::HearLate(std::uint64_t meant, const Command& command) {
  if (!life_ || process_.stopped() || process_.life() == meant) return;
  if (!life_->state.registered()) return;
  ++cluster_->results.late_commands;
  Feed(node::ControllerSaid{command});
  if (life_) CheckRetirement(command);
}

void SimNode::HearController(std::uint64_t link, const ControllerToNode& message) {
  if (!life_->link_stream || life_->link != link) return;
  life_->heard = process_.Now();
  const auto* command = std::get_if<Command>(&message);
  Feed(node::ControllerSaid{message});
  if (command != nullptr && life_) CheckRetirement(*command);
  const auto* policies = std::get_if<TenantPolicies>(&message);
  if (policies != nullptr && life_) WatchKeysOf(*policies);
}

void SimNode::WatchKeysOf(const TenantPolicies& policies) {
  if (policies.token < life_->policies_from) return;
  life_->policies_from = policies.token;
  std::set<std::string> revoked;
  for (const TenantPolicy& policy : policies.tenants) {
    revoked.insert(policy.revoked_clients.begin(), policy.revoked_clients.end());
  }
  for (const std::string& client : revoked) {
    if (life_->revoked.contains(client) || !cluster_->rules.restarts_are_new) continue;
    // What is registered anew waits for the adapter first, and for a move to another tier that is
    // being registered just then.
    const Instant gone = process_.Now() + lease_ + LeaseMargin(lease_) + 500ms;
    process_.AtLocal(gone, [this, client, keys = life_->told[client]] { CheckKeys(client, keys); });
  }
  life_->revoked = std::move(revoked);
}

void SimNode::CheckKeys(const std::string& client, const std::set<std::uint64_t>& keys) {
  // One that has just woken had no time to do what it will do at once.
  if (cluster_->world->now() - process_.awake_since() < 200ms) {
    process_.After(200ms, [this, client, keys] { CheckKeys(client, keys); });
    return;
  }
  cluster_->results.keys_taken += keys.size();
  for (const std::uint64_t key : keys) {
    if (!life_->memory->keys.contains(key)) continue;
    ++cluster_->results.keys_left;
    return cluster_->world->Fail(absl::StrCat(process_.name(), " serves by a key that ", client,
                                              " was told before it was revoked"));
  }
}

void SimNode::Do(const node::SendToController& action) {
  if (!life_->link_stream) return;
  life_->link_stream->Send(
      &process_, [controller = life_->controller, link = life_->link, message = action.message] {
        controller->HearNode(link, message);
      });
}

// The leader retires only what its map does not serve any more, and nobody else is obeyed.
void SimNode::CheckRetirement(const Command& command) {
  const auto* retire = std::get_if<RetireReplicas>(&command.body);
  const SimController* leader = cluster_->Leader();
  if (retire == nullptr || leader == nullptr) return;
  const placement::ClusterState& state = leader->controller()->state();
  const placement::TableEntry* table = state.FindTable(retire->table);
  const placement::NodeRecord* record = state.FindNode(id());
  if (table == nullptr || record == nullptr || record->incarnation != life_->state.incarnation()) {
    return;
  }
  for (ShardIndex shard : retire->shards) {
    const node::Replica* replica = life_->state.FindReplica({retire->table, shard});
    if (replica != nullptr && !replica->retirement_wanted()) continue;  // it refused
    for (const MapReplica& mapped : table->Replicas(shard)) {
      if (mapped.node != id() || mapped.state != ReplicaState::kServing) continue;
      ++cluster_->results.retired_while_mapped;
      cluster_->world->Fail(absl::StrCat(process_.name(), " retires shard ", shard.value(),
                                         " of table ", table->record.name.Full(),
                                         ", which the leader's map says it serves"));
    }
  }
}

void SimNode::SeverController() {
  if (life_ && life_->link_stream) life_->link_stream->Sever();
}

void SimNode::Do(const node::Exit& action) {
  cluster_->world->Trace(absl::StrCat(process_.name(), " exits: ", action.why.ToString()));
  ++cluster_->results.replaced;
  // The events of this life must not find it gone while they run.
  process_.world().After(0s, [this, life = process_.life()] {
    if (process_.life() == life) Crash();
  });
}

// ---- sessions ----

std::optional<SimNode::ClientStream> SimNode::Accept(
    Process* client, std::function<void(const NodeMessage&)> deliver) {
  if (!life_) return std::nullopt;
  const node::StreamId id(++last_stream_);
  auto stream = Stream::Connect(cluster_->world, client, &process_);
  stream->OnLost(&process_, [this, id] {
    life_->clients.erase(id);
    Feed(node::StreamBroken{id});
  });
  life_->clients[id] = {client->name(), stream, std::move(deliver)};
  return ClientStream{stream, id};
}

void SimNode::SeverStreams() {
  if (!life_) return;
  for (auto& [id, client] : life_->clients) client.stream->Sever();
}

void SimNode::Hear(node::StreamId stream, const ClientMessage& message) {
  const auto client = life_->clients.find(stream);
  if (client == life_->clients.end()) return;
  ClientMessage proven = message;
  const std::string& name = client->second.name;
  if (auto* open = std::get_if<OpenSession>(&proven); open != nullptr) {
    open->proven = name.rfind("client", 0) == 0
                       ? Identity{Role::kClient, std::string(kDefaultTenant), name}
                       : Identity{Role::kNode, "", name};
  }
  Feed(node::ClientSaid{stream, std::move(proven)});
}

// To a client; nodes that pull are left alone.
bool SimNode::LosesUpdate(const std::string& reader) {
  if (cluster_->world->now() >= cluster_->updates_lost_until) return false;
  if (reader.rfind("client", 0) != 0 || !cluster_->world->Chance(20)) return false;
  ++cluster_->results.updates_lost;
  return true;
}

void SimNode::Do(const node::SendToClient& action) {
  const auto it = life_->clients.find(action.stream);
  if (it == life_->clients.end()) return;
  if (const auto* update = std::get_if<GrantUpdate>(&action.message)) {
    if (LosesUpdate(it->second.name)) return;
    for (const Grant& grant : update->granted) {
      life_->told[it->second.name].insert(grant.paths.at(1).key);
    }
  }
  it->second.stream->Send(
      &process_, [deliver = it->second.deliver, message = action.message] { deliver(message); });
}

void SimNode::Do(const node::CloseStream& action) {
  const auto it = life_->clients.find(action.stream);
  if (it == life_->clients.end()) return;
  it->second.stream->Close(&process_);
  life_->clients.erase(it);
}

void SimNode::Do(const node::AdmitSession& action) { life_->memory->admitted.insert(action.token); }

void SimNode::Do(const node::DismissSession& action) {
  life_->memory->admitted.erase(action.token);
}

}  // namespace engram::simulation
