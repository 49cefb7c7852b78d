// The controller and its store, and everything at once.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(ControllerTest, FullStoreRefusesChangesAndKeepsServingReads) {
  FakeNode a("a");
  LoadSmall({&a});
  pool_.store().FailWrites(absl::ResourceExhaustedError("state file /x: disk is full"));
  LoadRequest other = SmallLoad("r2");
  other.name.version = "2";
  EXPECT_EQ(pool_.Load(other)->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool_.Delete(kSmall)->status().code(), absl::StatusCode::kResourceExhausted);
  pool_.Settle({&a});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_TRUE(pool_.map().FindNode({"a"})->alive);
  pool_.store().FailWrites(absl::OkStatus());
  EXPECT_TRUE(pool_.Load(other)->ok());
}

TEST_F(ControllerTest, NewsThatCouldNotBeStoredAreToldAgain) {
  FakeNode a("a");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  pool_.store().FailWrites(absl::ResourceExhaustedError("disk is full"));
  a.Obey();
  pool_.Beat(a);
  EXPECT_EQ(a.last_seen, 0u);
  EXPECT_FALSE(a.link);
  pool_.store().FailWrites(absl::OkStatus());
  pool_.Join(a);
  pool_.Settle({&a});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
}

TEST_F(ControllerTest, ControllerThatLostItsStoreToAnotherStops) {
  FakeNode a("a");
  pool_.Join(a);
  SeededRandom random(2);
  auto other = Controller::Open(pool_.clock().Now(), {}, &pool_.store(), &random);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(pool_.Load(SmallLoad())->status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(pool_.deposed);
}

// What a pool goes through while its controller's wall clock says `unix_ms`.
std::vector<std::string> HistoryUnder(std::function<std::int64_t()> unix_ms) {
  ControllerOptions options;
  options.repair_after = seconds(20);
  options.unix_ms = std::move(unix_ms);
  SmallPool pool(1, options);
  FakeNode a("a"), b("b"), c("c");
  for (FakeNode* node : {&a, &b, &c}) pool.Join(*node);
  EXPECT_TRUE(pool.Load(SmallLoad("r1", 2))->ok());
  pool.Settle({&a, &b, &c});
  const auto dead = pool.Holders(0).front();
  std::vector<FakeNode*> alive;
  for (FakeNode* node : {&a, &b, &c}) {
    if (node->hello.node.name == dead) {
      pool.Break(*node);
    } else {
      alive.push_back(node);
    }
  }
  pool.Settle(alive, 60);
  pool.Restart();
  for (FakeNode* node : alive) pool.Join(*node);
  pool.Settle(alive);
  EXPECT_EQ(pool.Find(kSmall)->counts().serving, 12u);
  return pool.said;
}

TEST(ControllerClockTest, AWallClockThatIsAnHourOffOrJumpsChangesNothing) {
  constexpr std::int64_t kNow = 1'700'000'000'000, kHour = 3'600'000;
  const std::vector<std::string> right = HistoryUnder([] { return kNow; });
  EXPECT_GT(right.size(), 5u);
  EXPECT_EQ(HistoryUnder([] { return kNow - kHour; }), right);
  EXPECT_EQ(HistoryUnder([calls = 0]() mutable { return kNow + (++calls % 3 - 1) * kHour; }),
            right);
}

// Random joins, breaks, kills, controller crashes, failed writes, loads and deletes. At the end
// nothing fails any more and everything settles; a follower of the deltas knows what the state
// says.
TEST(ControllerPropertyTest, SettlesAfterAnyHistory) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SmallPool pool(seed);
    SeededRandom random(seed * 7919);
    std::vector<std::unique_ptr<FakeNode>> nodes;
    for (int i = 0; i < 4; ++i) {
      nodes.push_back(std::make_unique<FakeNode>("n" + std::to_string(i), 64 << 20));
      pool.Join(*nodes.back());
    }
    int processes = 1;
    for (int step = 0; step < 120; ++step) {
      FakeNode& node = *nodes[random.Below(nodes.size())];
      switch (random.Below(12)) {
        case 0:
          if (node.link) pool.Break(node);
          break;
        case 1: {
          if (node.link) pool.Break(node);
          auto& slot = nodes[static_cast<std::size_t>(node.hello.node.name[1] - '0')];
          slot = std::make_unique<FakeNode>(node.hello.node.name, 64 << 20, "",
                                            std::to_string(++processes));
          break;
        }
        case 2:
          pool.store().FailWrites(absl::OkStatus());
          pool.Restart();
          break;
        case 3: {
          LoadRequest load = SmallLoad("r" + std::to_string(step),
                                       static_cast<std::uint32_t>(1 + random.Below(3)));
          load.name.version = std::to_string(random.Below(3));
          (void)pool.Load(load);
          break;
        }
        case 4:
          (void)pool.Delete({"small", std::to_string(random.Below(3))}, "d" + std::to_string(step));
          break;
        case 5: pool.store().FailWrites(absl::ResourceExhaustedError("full")); break;
        case 6: pool.store().FailWrites(absl::OkStatus()); break;
        case 7: node.Obey(random.Below(2) == 0); break;
        default:
          if (node.link) {
            pool.Beat(node);
          } else {
            pool.Join(node);
          }
      }
      pool.clock().Advance(milliseconds(random.Below(700)));
      if (random.Below(2) == 0) pool.Feed(Tick{});
    }
    pool.store().FailWrites(absl::OkStatus());
    std::vector<FakeNode*> all;
    for (auto& node : nodes) all.push_back(node.get());
    for (int round = 0; round < 30; ++round) {
      for (FakeNode* node : all) {
        if (!node->link) pool.Join(*node);
        node->Obey();
        node->FinishLoads();
        pool.Beat(*node);
      }
      pool.clock().Advance(milliseconds(500));
      pool.Feed(Tick{});
    }
    std::size_t assigned = 0, held = 0;
    for (const auto& [uid, table] : pool.state().tables) {
      EXPECT_EQ(table->record.state, TableState::kReady) << table->record.error;
      const ReplicaCounts counts = table->counts();
      EXPECT_EQ(counts.serving, table->layout->shards() * table->record.options.replicas);
      EXPECT_EQ(counts.loading + counts.draining, 0u);
      assigned += counts.serving;
    }
    for (FakeNode* node : all) held += node->held.size();
    EXPECT_EQ(held, assigned);
    auto known = pool.map().Snapshot(), real = pool.state().Snapshot();
    EXPECT_EQ(known.nodes, real.nodes);
    EXPECT_EQ(known.tables, real.tables);
    EXPECT_EQ(known.chunks, real.chunks);
  }
}

}  // namespace
}  // namespace engram::placement
