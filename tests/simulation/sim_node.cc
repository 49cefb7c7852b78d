#include "tests/simulation/sim_node.h"

#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/sealed_row.h"
#include "tests/simulation/sim_controller.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario
namespace node = poolserver;

namespace {

// A table that no client asks for: what freed memory holds next.
TableRecord NextTenant(const TableRecord& table) {
  TableRecord next = table;
  next.uid.bytes[15] ^= 0xff;
  next.source.seed ^= 0xffff'ffff;
  return next;
}

}  // namespace

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

void SimNode::Do(const node::SendToClient& action) {
  const auto it = life_->clients.find(action.stream);
  if (it == life_->clients.end()) return;
  if (const auto* update = std::get_if<GrantUpdate>(&action.message)) {
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

// ---- memory ----

const std::byte* SimNode::BytesOf(const ShardInTier& key) const {
  return life_->memory->bytes.data() + life_->held.at(key).place * kPlaceBytes;
}

bool SimNode::Serves(const ShardInTier& key) const {
  const node::Replica* replica = life_->state.FindReplica(key.first);
  return replica != nullptr && replica->state() == ReplicaState::kServing &&
         replica->tier() == key.second;
}

// One checksum: the shards of the simulation are one block.
absl::Status SimNode::Verify(const ShardInTier& key, std::vector<std::uint32_t>* crcs) const {
  const TableRecord& table = life_->tables.at(key.first);
  const ShardRange range = ShardLayout(table.spec, table.options).Range(key.first.shard);
  crcs->resize(1);
  return node::RowPacker(table).Verify({range.first, range.rows, BytesOf(key), crcs->data()});
}

// Little dram, so that tables spill into cxl.
std::map<Tier, std::uint64_t> SimNode::Places() const {
  const std::uint64_t cxl = places_ * 2 / 3;
  return {{Tier::kDram, places_ - cxl}, {Tier::kCxl, cxl}};
}

std::vector<TierCapacity> SimNode::TiersWith(const std::map<Tier, std::uint64_t>& free) const {
  std::vector<TierCapacity> tiers;
  for (const auto& [tier, places] : Places()) {
    tiers.push_back({tier, CapacityFor(places), (places - free.at(tier)) * kPlaceBytes, 0});
  }
  return tiers;
}

// A replica takes a place whole, however few its bytes.
void SimNode::TellCapacity() {
  process_.After(0ms, [this] {
    std::map<Tier, std::uint64_t> free;
    for (const auto& [tier, places] : Places()) free[tier] = life_->free_places[tier].size();
    Feed(node::CapacityChanged{TiersWith(free)});
  });
}

void SimNode::Do(const node::StartLoad& action) {
  TellCapacity();
  for (ShardIndex shard : action.shards) {
    const ShardInTier key{{action.table.uid, shard}, action.tier};
    std::vector<std::uint64_t>& free = life_->free_places[action.tier];
    if (free.empty()) {
      process_.After(cluster_->world->Between(1ms, 300ms), [this, key] {
        Feed(node::LoadEnded{key.first, absl::ResourceExhaustedError("the arena is full")});
      });
      continue;
    }
    life_->tables[key.first] = action.table;
    Held& held = life_->held[key];
    held.place = free.back();
    held.load = ++life_->loads;
    free.pop_back();
    const Duration wait =
        action.source && !action.from ? Duration(1ms) : cluster_->world->Between(1ms, 300ms);
    process_.After(wait, [this, key, load = held.load, source = action.source, from = action.from] {
      const auto found = life_->held.find(key);
      if (found == life_->held.end() || found->second.load != load) return;
      if (found->second.loaded) return;  // given up meanwhile
      if (from) return CopyShard(key, *from);
      source ? PullShard(key, *source) : LoadShard(key);
    });
  }
}

void SimNode::LoadShard(const ShardInTier& key) {
  Held& held = life_->held.at(key);
  held.loaded = true;
  FillPlace(held.place, life_->tables.at(key.first), key.first.shard);
  std::vector<std::uint32_t> crcs;
  ENGRAM_CHECK(Verify(key, &crcs).ok());
  Feed(node::ReplicaLoaded{key.first, crcs});
}

// The memory that is copied must still be there.
void SimNode::CopyShard(const ShardInTier& key, Tier from) {
  Held& held = life_->held.at(key);
  const Held& source = life_->held.at({key.first, from});
  held.loaded = true;
  held.flipped = source.flipped;
  std::memcpy(life_->memory->bytes.data() + held.place * kPlaceBytes, BytesOf({key.first, from}),
              kPlaceBytes);
  std::vector<std::uint32_t> crcs;
  if (absl::Status sound = Verify(key, &crcs); !sound.ok()) {
    return Feed(node::LoadEnded{key.first, sound});
  }
  Feed(node::ReplicaLoaded{key.first, crcs});
}

void SimNode::PullShard(const ShardInTier& key, const Successor& from) {
  Held& held = life_->held.at(key);
  held.pull =
      std::make_shared<SimPull>(cluster_, &process_, life_->tables.at(key.first), key.first.shard,
                                from, life_->memory->bytes.data() + held.place * kPlaceBytes,
                                [this, key](absl::StatusOr<std::vector<std::uint32_t>> result) {
                                  Held& done = life_->held.at(key);
                                  done.loaded = true;
                                  done.pull.reset();
                                  if (result.ok()) {
                                    Feed(node::ReplicaLoaded{key.first, *result});
                                  } else {
                                    Feed(node::LoadEnded{key.first, result.status()});
                                  }
                                });
  held.pull->Start();
}

bool SimNode::FlipBit() {
  if (!life_) return false;
  for (auto& [key, held] : life_->held) {
    const TableRecord& table = life_->tables.at(key.first);
    if (!Serves(key) || held.flipped || table.options.seal == SealKind::kNone ||
        cluster_->world->Chance(50)) {
      continue;
    }
    held.flipped = true;
    const ShardLayout layout(table.spec, table.options);
    std::byte* bytes = life_->memory->bytes.data() + held.place * kPlaceBytes;
    bytes[cluster_->world->Below(layout.StoredBytes(key.first.shard))] ^=
        std::byte{1} << cluster_->world->Below(8);
    return true;
  }
  return false;
}

bool SimNode::MemoryIsRight() const {
  for (const auto& [key, held] : life_->held) {
    if (!Serves(key)) continue;
    const TableRecord& table = life_->tables.at(key.first);
    const ShardLayout layout(table.spec, table.options);
    const ShardRange range = layout.Range(key.first.shard);
    std::vector<std::byte> golden(layout.row_bytes());
    const std::byte* row = BytesOf(key);
    for (std::uint64_t i = 0; i < range.rows; ++i, row += layout.stride()) {
      GoldenRow(table, RowId(range.first.value() + i), golden);
      if (std::memcmp(row, golden.data(), golden.size()) != 0) return false;
    }
  }
  return true;
}

void SimNode::Do(const node::ScrubSlice& action) {
  process_.After(cluster_->world->Between(1ms, 100ms), [this, action] {
    std::vector<std::uint32_t> crcs;
    absl::Status sound = Verify({action.shard, action.tier}, &crcs);
    if (sound.ok() && crcs != action.block_crcs) sound = absl::DataLossError("other bytes");
    cluster_->results.withdrawn += !sound.ok();
    Feed(node::SliceScrubbed{action.shard, action.tier, sound});
  });
}

void SimNode::FillPlace(std::uint64_t place, const TableRecord& table, ShardIndex shard) {
  const ShardLayout layout(table.spec, table.options);
  const RowSealer sealer(table.uid, layout.row_bytes());
  const ShardRange range = layout.Range(shard);
  ENGRAM_CHECK(range.rows * layout.stride() <= kPlaceBytes);
  std::byte* out = life_->memory->bytes.data() + place * kPlaceBytes;
  for (std::uint64_t i = 0; i < range.rows; ++i, out += layout.stride()) {
    const RowId row(range.first.value() + i);
    GoldenRow(table, row, {out, layout.row_bytes()});
    if (layout.seal() == SealKind::kNone) continue;
    const std::uint64_t seal = sealer.Seal(row, out);
    std::memcpy(out + layout.row_bytes(), &seal, sizeof seal);
  }
}

void SimNode::Do(const node::StopLoad& action) {
  for (auto& [key, held] : life_->held) {
    // One that is loaded has its answer under way already.
    if (key.first != action.shard || held.loaded) continue;
    if (held.pull) {
      process_.After(0ms, [pull = held.pull] { pull->Cancel(); });
      return;
    }
    held.loaded = true;
    process_.After(cluster_->world->Between(0ms, 20ms), [this, shard = action.shard] {
      Feed(node::LoadEnded{shard, absl::CancelledError("stopped")});
    });
    return;
  }
}

void SimNode::Do(const node::ExposeReplica& action) {
  const ShardKey shard = action.registration.shard;
  const ShardLayout layout(life_->tables.at(shard).spec, life_->tables.at(shard).options);
  process_.After(cluster_->world->Between(0ms, 5ms), [this, registration = action.registration,
                                                      tier = action.tier,
                                                      bytes = layout.StoredBytes(shard.shard)] {
    Held& held = life_->held.at({registration.shard, tier});
    const std::uint64_t offset = held.place * kPlaceBytes;
    const std::uint64_t key =
        cluster_->rules.restarts_are_new ? cluster_->world->random().Next() : ++life_->last_key;
    held.keys[registration.registration] = key;
    life_->memory->keys[key] = {offset, bytes};
    Feed(node::ReplicaExposed{
        registration, {{0, offset, bytes, 0}, {1, offset, bytes, key}}, true, {}});
  });
}

void SimNode::Do(const node::HideReplica& action) {
  for (auto& [key, held] : life_->held) {
    if (key.first != action.registration.shard) continue;
    const auto hidden = held.keys.extract(action.registration.registration);
    if (!hidden.empty()) life_->memory->keys.erase(hidden.mapped());
  }
  process_.After(cluster_->world->Between(0ms, 5ms), [this, registration = action.registration] {
    Feed(node::ReplicaHidden{registration});
  });
}

void SimNode::Do(const node::ReleaseMemory& action) {
  const auto held = life_->held.find({action.shard, action.tier});
  if (held == life_->held.end()) return;  // a load that found no room
  ++cluster_->results.retired;
  FillPlace(held->second.place, NextTenant(life_->tables.at(action.shard)), action.shard.shard);
  life_->free_places[action.tier].push_back(held->second.place);
  TellCapacity();
  life_->held.erase(held);
  const auto rest = life_->held.lower_bound({action.shard, Tier::kDram});
  if (rest == life_->held.end() || rest->first.first != action.shard) {
    life_->tables.erase(action.shard);
  }
}

void SimNode::Do(const node::StartInspection& action) {
  Feed(node::InspectionEnded{action.command, absl::UnimplementedError("nothing to inspect"), {}});
}

// A reader of the node's own, as the scrubber is one: what it reads must stay until it is finished.
void SimNode::ReadOwnMemory() {
  process_.After(cluster_->world->Between(100ms, 2s), [this] { ReadOwnMemory(); });
  if (life_->held.empty()) return;
  auto it = life_->held.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(cluster_->world->Below(life_->held.size())));
  const ShardKey shard = it->first.first;
  if (!life_->state.StartOwnRead(shard)) return;
  const ShardInTier key{shard, life_->state.FindReplica(shard)->tier()};
  process_.After(cluster_->world->Between(1ms, 1s), [this, key] {
    const auto& [shard, tier] = key;
    const TableRecord& table = life_->tables.at(shard);
    if (life_->held.at(key).flipped) return Feed(node::OwnReadFinished{shard, tier});
    const ShardLayout layout(table.spec, table.options);
    std::vector<std::byte> golden(layout.row_bytes());
    GoldenRow(table, layout.Range(shard.shard).first, golden);
    if (std::memcmp(BytesOf(key), golden.data(), golden.size()) != 0) {
      cluster_->world->Fail(process_.name() + " reused memory that it was reading itself");
    }
    Feed(node::OwnReadFinished{shard, tier});
  });
}

}  // namespace engram::simulation
