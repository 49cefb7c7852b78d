// The memory of a SimNode: places, what is in them, and who reads them there.
#include <cstring>

#include "engram/check.h"
#include "engram/sealed_row.h"
#include "tests/simulation/sim_node.h"

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

void SimNode::FailOwnRead() {
  cluster_->world->Fail(process_.name() + " reused memory that it was reading itself");
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
    const auto held = life_->held.find(key);
    if (held == life_->held.end()) return FailOwnRead();
    const TableRecord& table = life_->tables.at(shard);
    if (held->second.flipped) return Feed(node::OwnReadFinished{shard, tier});
    const ShardLayout layout(table.spec, table.options);
    std::vector<std::byte> golden(layout.row_bytes());
    GoldenRow(table, layout.Range(shard.shard).first, golden);
    if (std::memcmp(BytesOf(key), golden.data(), golden.size()) != 0) FailOwnRead();
    Feed(node::OwnReadFinished{shard, tier});
  });
}

}  // namespace engram::simulation
