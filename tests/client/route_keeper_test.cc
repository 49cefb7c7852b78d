#include "client/route_keeper.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "client/shard_set.h"
#include "engram/shard_map.h"
#include "tests/count_allocations.h"

namespace engram::client {
namespace {

// Reaches everybody; knows which regions are imported.
class EasyFabric final : public fabric::Fabric {
 public:
  explicit EasyFabric(FabricKind kind) { info_.kind = kind; }
  const fabric::FabricInfo& info() const override { return info_; }
  absl::StatusOr<fabric::PeerId> AddPeer(const fabric::PeerAddress&, Instant) override {
    return fabric::PeerId(++peers);
  }
  void RemovePeer(fabric::PeerId) override { --peers; }
  absl::StatusOr<fabric::RemoteRegion> Import(const fabric::RemoteRegion& granted) override {
    if (watched) imported.insert(granted.key);
    return granted;
  }
  void Release(const fabric::RemoteRegion& region) override {
    EXPECT_EQ(imported.erase(region.key), 1u) << region.key;
  }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(std::span<std::byte>,
                                                                 fabric::MemoryKind) override {
    return absl::UnimplementedError("nothing is read here");
  }
  absl::StatusOr<std::unique_ptr<fabric::ReadQueue>> OpenQueue(const QueueOptions&) override {
    return absl::UnimplementedError("nothing is read here");
  }

  std::multiset<std::uint64_t> imported;  // keys
  std::uint32_t peers = 0;
  bool watched = true;

 private:
  fabric::FabricInfo info_;
};

TableUid UidOf(std::uint8_t first) {
  TableUid uid;
  uid.bytes[0] = first;
  return uid;
}

Grant GrantOf(std::uint8_t table, std::uint32_t shard, std::uint64_t key, std::uint32_t paths = 1) {
  Grant grant{{UidOf(table), ShardIndex(shard)}, Tier::kDram, {}};
  for (std::uint32_t path = 0; path < paths; ++path) {
    grant.paths.push_back({path, std::uint64_t{shard} << 20, 1 << 20, key + path});
  }
  return grant;
}

class RouteKeeperTest : public ::testing::Test {
 protected:
  void Begin(const NodeId& node) {
    SessionOpened opened;
    opened.node = node;
    for (FabricKind kind : {FabricKind::kMapped, FabricKind::kStream}) {
      PathAddress path;
      path.fabric = kind;
      path.address = node.name;
      opened.paths.push_back(path);
    }
    keeper_.Begin(node, opened, std::make_shared<ReadLease>(Instant()), Instant());
  }
  std::vector<std::uint64_t> KeysOf(const RouteBoard& board, std::uint32_t shard) {
    std::vector<std::uint64_t> keys;
    for (const Route& route : board.Shared()->Candidates(ShardIndex(shard))) {
      keys.push_back(route.region.key);
    }
    return keys;
  }

  using Keys = std::vector<std::uint64_t>;
  const NodeId a_{"a"}, b_{"b"};
  EasyFabric mapped_{FabricKind::kMapped}, stream_{FabricKind::kStream};
  Quiescence quiescence_;
  RouteKeeper keeper_{{&quiescence_, {&mapped_, &stream_}, {}, 0}};
  RouteBoard board_{&quiescence_, Routes::Builder({}).Build()};
};

TEST_F(RouteKeeperTest, RoutesWhatIsGrantedAndReleasesWhatIsWithdrawnWhenItIsTold) {
  keeper_.AddBoard(&board_, UidOf(1), 10);
  Begin(a_);
  // Not in order, of two tables.
  keeper_.Change(a_, GrantRevision(1),
                 {GrantOf(1, 7, 70, 2), GrantOf(2, 3, 230), GrantOf(1, 3, 30)}, {});
  EXPECT_EQ(KeysOf(board_, 7), (Keys{70, 71}));
  EXPECT_EQ(KeysOf(board_, 3), (Keys{30}));
  EXPECT_EQ(KeysOf(board_, 4), Keys());
  // One goes, one is replaced, one comes in between.
  keeper_.Change(a_, GrantRevision(2), {GrantOf(1, 3, 33), GrantOf(1, 5, 50)},
                 {{UidOf(1), ShardIndex(7)}});
  EXPECT_EQ(KeysOf(board_, 7), Keys());
  EXPECT_EQ(KeysOf(board_, 3), (Keys{33}));
  EXPECT_EQ(KeysOf(board_, 5), (Keys{50}));
  EXPECT_EQ(mapped_.imported, (std::multiset<std::uint64_t>{30, 33, 50, 70, 230}));
  keeper_.Release(a_, GrantRevision(2));
  EXPECT_EQ(mapped_.imported, (std::multiset<std::uint64_t>{33, 50, 230}));
  EXPECT_TRUE(stream_.imported.empty());
}

TEST_F(RouteKeeperTest, OfAShardThatIsGrantedTwiceTheLastCounts) {
  keeper_.AddBoard(&board_, UidOf(1), 10);
  Begin(a_);
  keeper_.Change(a_, GrantRevision(1), {GrantOf(1, 3, 30), GrantOf(1, 3, 31)}, {});
  EXPECT_EQ(KeysOf(board_, 3), (Keys{31}));
  keeper_.Void(a_);
  keeper_.ReleaseAll(a_);
  EXPECT_TRUE(mapped_.imported.empty());
}

TEST_F(RouteKeeperTest, AVoidedSessionLeavesTheOthersRoutesAndGivesEverythingBack) {
  keeper_.AddBoard(&board_, UidOf(1), 10);
  Begin(a_);
  Begin(b_);
  keeper_.Change(a_, GrantRevision(1), {GrantOf(1, 3, 30, 2), GrantOf(2, 3, 230)}, {});
  keeper_.Change(b_, GrantRevision(1), {GrantOf(1, 3, 40)}, {});
  keeper_.Void(a_);
  EXPECT_EQ(KeysOf(board_, 3), (Keys{40}));
  keeper_.ReleaseAll(a_);
  EXPECT_EQ(mapped_.imported, (std::multiset<std::uint64_t>{40}));
  EXPECT_TRUE(stream_.imported.empty());
  EXPECT_EQ(mapped_.peers, 1u);
}

TEST_F(RouteKeeperTest, BoardsOfOneTableShareTheirRoutesAndWaitForThemTogether) {
  RouteBoard second(&quiescence_, Routes::Builder({}).Build());
  keeper_.AddBoard(&board_, UidOf(1), 10);
  keeper_.SetIncomplete(&board_, false);
  EXPECT_FALSE(board_.Shared()->incomplete());
  keeper_.AddBoard(&second, UidOf(1), 10);
  EXPECT_TRUE(board_.Shared()->incomplete()) << "the second has not said that it is complete";
  keeper_.SetIncomplete(&second, false);
  EXPECT_FALSE(second.Shared()->incomplete());
  Begin(a_);
  keeper_.Change(a_, GrantRevision(1), {GrantOf(1, 3, 30)}, {});
  EXPECT_EQ(board_.Shared(), second.Shared());
  keeper_.RemoveBoard(&board_);
  keeper_.Change(a_, GrantRevision(2), {GrantOf(1, 4, 40)}, {});
  EXPECT_EQ(KeysOf(board_, 4), Keys()) << "it was removed";
  EXPECT_EQ(KeysOf(second, 3), (Keys{30}));
  EXPECT_EQ(KeysOf(second, 4), (Keys{40}));
  keeper_.RemoveBoard(&second);
  // What is granted of a table that nobody has open is given back all the same.
  keeper_.Void(a_);
  keeper_.ReleaseAll(a_);
  EXPECT_TRUE(mapped_.imported.empty());
}

TEST_F(RouteKeeperTest, TheOrderOfEqualCandidatesDoesNotChangeWhenRoutesAreMadeAnew) {
  keeper_.AddBoard(&board_, UidOf(1), 10);
  for (const NodeId& node : {a_, b_}) Begin(node);
  keeper_.Change(b_, GrantRevision(1), {GrantOf(1, 3, 40), GrantOf(1, 4, 41)}, {});
  keeper_.Change(a_, GrantRevision(1), {GrantOf(1, 3, 30), GrantOf(1, 4, 31)}, {});
  const Keys third = KeysOf(board_, 3), fourth = KeysOf(board_, 4);
  EXPECT_EQ(third, (Keys{40, 30})) << "turned by the shard";
  EXPECT_EQ(fourth, (Keys{31, 41}));
  keeper_.SetIncomplete(&board_, false);
  keeper_.Change(a_, GrantRevision(2), {GrantOf(1, 7, 37)}, {});
  EXPECT_EQ(KeysOf(board_, 3), third);
  EXPECT_EQ(KeysOf(board_, 4), fourth);
  keeper_.Cut(a_);
  EXPECT_EQ(KeysOf(board_, 3), (Keys{40, 30}));
  EXPECT_EQ(KeysOf(board_, 4), (Keys{41, 31})) << "its stream broke";
}

// A table of 200,000 shards on 20 nodes, each with one copy that can be reached by one path: all
// that the client keeps of each for as long as it is open.
TEST_F(RouteKeeperTest, AReplicaEntryTakesAtMost64BytesItsRegionIncluded) {
  constexpr std::uint32_t kShards = 200'000, kNodes = 20;
  mapped_.watched = false;
  MapDelta delta;
  delta.to = Epoch(1);
  for (std::uint32_t first = 0; first < kShards; first += kChunkShards) {
    MapChunk& chunk = delta.chunks.emplace_back(MapChunk{UidOf(1), first / kChunkShards, {}});
    for (std::uint32_t shard = first; shard < std::min(kShards, first + kChunkShards); ++shard) {
      const NodeId node{absl::StrCat("a-node-with-a-long-name-", shard % kNodes)};
      chunk.shards.push_back({{node, Tier::kDram, ReplicaState::kServing}});
    }
  }
  std::vector<std::vector<Grant>> granted(kNodes);
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    granted[shard % kNodes].push_back(GrantOf(1, shard, shard));
  }
  const CountAllocations counted;
  keeper_.AddBoard(&board_, UidOf(1), kShards);
  const auto map = *ShardMap::Empty()->Apply(delta);
  std::vector<ShardSet> sessions(kNodes);
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    const NodeId id{absl::StrCat("a-node-with-a-long-name-", node)};
    Begin(id);
    for (const Grant& grant : granted[node]) sessions[node].Insert(grant.shard);
    keeper_.Change(id, GrantRevision(1), granted[node], {});
  }
  const double bytes = static_cast<double>(counted.bytes()) / kShards;
  RecordProperty("bytes", absl::StrCat(bytes));
  EXPECT_EQ(board_.Shared()->shards_served(), kShards);
  EXPECT_EQ(map->ReadableNodes(UidOf(1)).size(), kNodes);
  EXPECT_LE(bytes, 64);
  EXPECT_GT(bytes, 48);
}

TEST(ShardSetTest, HoldsWhatWasInsertedAndNotErased) {
  ShardSet set;
  const ShardKey one{UidOf(1), ShardIndex(5)}, far{UidOf(1), ShardIndex(~0u)},
      other{UidOf(2), ShardIndex(5)};
  for (const ShardKey& key : {one, far}) set.Insert(key);
  EXPECT_FALSE(set.Erase(other));
  EXPECT_TRUE(set.Erase(far));
  EXPECT_FALSE(set.Erase(far));
  EXPECT_TRUE(set.Erase(one));
  set.Insert(one);
  set.Clear();
  EXPECT_FALSE(set.Erase(one));
}

}  // namespace
}  // namespace engram::client
