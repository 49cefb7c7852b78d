#include "placement/ops/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/placement/small_pool.h"

namespace engram::placement {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

const TableName kSmall{"small", "1"};

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

class ControllerTest : public ::testing::Test {
 protected:
  // A Ready table over the nodes given.
  void LoadSmall(std::vector<FakeNode*> nodes, std::uint32_t replicas = 1) {
    for (FakeNode* node : nodes) pool_.Join(*node);
    const auto answer = pool_.Load(SmallLoad("r1", replicas));
    ASSERT_TRUE(answer && answer->ok()) << answer->status();
    pool_.Settle(nodes);
    ASSERT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  }
  SmallPool pool_;
};

// ---- registration ----

TEST_F(ControllerTest, IncarnationsGrowOverAllNodesAndRestarts) {
  FakeNode a("a"), b("b"), again("a", 1 << 30, "", "2");
  pool_.Join(a);
  pool_.Join(b);
  EXPECT_LT(a.welcomed->incarnation, b.welcomed->incarnation);
  pool_.Break(a);
  pool_.Restart();
  pool_.Join(again);
  EXPECT_LT(b.welcomed->incarnation, again.welcomed->incarnation);
}

TEST_F(ControllerTest, TheSameProcessKeepsItsIncarnation) {
  FakeNode a("a");
  pool_.Join(a);
  const Incarnation first = a.welcomed->incarnation;
  pool_.Break(a);
  pool_.Join(a);
  EXPECT_EQ(a.welcomed->incarnation, first);
  pool_.Break(a);
  a.hello.incarnation = Incarnation();  // its welcome was lost
  pool_.Join(a);
  EXPECT_EQ(a.welcomed->incarnation, first);
}

TEST_F(ControllerTest, FencingTokenGrowsWithEveryStart) {
  FakeNode a("a");
  pool_.Join(a);
  const FencingToken first = a.welcomed->token;
  pool_.Restart();
  pool_.Join(a);
  EXPECT_LT(first, a.welcomed->token);
}

TEST_F(ControllerTest, NewcomerIsRefusedWhileTheOtherProcessSpeaks) {
  FakeNode old_process("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(old_process);
  pool_.Join(newcomer);
  EXPECT_FALSE(newcomer.welcomed);
  EXPECT_TRUE(newcomer.refused.ok());
  pool_.clock().Advance(seconds(1));
  pool_.Beat(old_process);
  EXPECT_EQ(newcomer.refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf(newcomer.refused), AllOf(HasSubstr("node a"), HasSubstr("is alive")));
  EXPECT_TRUE(old_process.refused.ok());
}

TEST_F(ControllerTest, StreamThatNeverSaysHelloIsClosed) {
  FakeNode a("a");
  const LinkId mute(1'000), prompt(1'001), gone(1'002);
  for (LinkId link : {mute, prompt, gone}) pool_.Feed(LinkOpened{link});
  pool_.Feed(NodeSaid{mute, CommandDone{1, absl::OkStatus(), {}}});  // is no hello
  pool_.Feed(NodeSaid{prompt, a.hello});
  pool_.Feed(LinkBroke{gone});
  pool_.clock().Advance(seconds(9));
  pool_.Feed(Tick{});
  EXPECT_FALSE(pool_.closed.contains(mute));
  pool_.clock().Advance(seconds(1));
  pool_.Feed(Tick{});
  ASSERT_TRUE(pool_.closed.contains(mute));
  EXPECT_EQ(pool_.closed.at(mute).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(pool_.closed.at(mute)), HasSubstr("within 10s"));
  EXPECT_FALSE(pool_.closed.contains(gone));
}

TEST_F(ControllerTest, RestartAfterAKillJoinsAtOnceWhenTheOldStreamBreaks) {
  FakeNode old_process("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(old_process);
  pool_.Join(newcomer);
  pool_.Break(old_process);
  ASSERT_TRUE(newcomer.welcomed);
  EXPECT_LT(old_process.welcomed->incarnation, newcomer.welcomed->incarnation);
}

TEST_F(ControllerTest, SilentProcessIsReplacedAndRefusedWhenItWakes) {
  FakeNode stopped("a"), newcomer("a", 1 << 30, "", "2");
  pool_.Join(stopped);
  const LinkId old_link = *stopped.link;
  pool_.Join(newcomer);
  pool_.clock().Advance(seconds(5));
  pool_.Feed(Tick{});
  ASSERT_TRUE(newcomer.welcomed);
  stopped.link = old_link;
  pool_.Join(stopped);  // woken, on a new stream
  EXPECT_EQ(stopped.refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(stopped.refused), HasSubstr("must exit"));
}

TEST_F(ControllerTest, SilentNodesDieAndComeBack) {
  FakeNode a("a");
  pool_.Join(a);
  pool_.clock().Advance(milliseconds(4'900));
  pool_.Feed(Tick{});
  EXPECT_TRUE(pool_.map().FindNode({"a"})->alive);
  pool_.clock().Advance(milliseconds(100));
  pool_.Feed(Tick{});
  EXPECT_FALSE(pool_.map().FindNode({"a"})->alive);
  pool_.Join(a);
  EXPECT_TRUE(pool_.map().FindNode({"a"})->alive);
}

// ---- loading ----

TEST_F(ControllerTest, TableIsReadyWhenEveryReplicaServes) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  const auto answer = pool_.Load(SmallLoad("r1", 2));
  ASSERT_TRUE(answer && answer->ok()) << answer->status();
  EXPECT_EQ((*answer)->state, TableState::kLoading);
  a.Obey();
  pool_.Beat(a);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kLoading);
  b.Obey();
  pool_.Beat(b);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.map().FindTable(kSmall)->state, TableState::kReady);
  EXPECT_EQ(a.held.size(), 6u);
  EXPECT_EQ(b.held.size(), 6u);
}

TEST_F(ControllerTest, ContentDigestIsThatOfAllBlocksInRowOrder) {
  FakeNode a("a"), b("b", 1 << 30, "rack");
  LoadSmall({&a, &b});
  const TableRecord& table = pool_.Find(kSmall)->record;
  std::string bytes;
  for (std::uint32_t shard = 0; shard < 6; ++shard) {
    for (std::uint32_t crc : CrcsOf(table, ShardIndex(shard))) {
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
    }
  }
  EXPECT_EQ(table.content_digest, Sha256Hex(bytes));
  EXPECT_EQ(pool_.map().FindTable(kSmall)->content_digest, table.content_digest);
}

TEST_F(ControllerTest, SecondLoadOfANameIsRefusedUnlessItIsTheSameRequest) {
  FakeNode a("a");
  pool_.Join(a);
  const auto first = pool_.Load(SmallLoad("r1"));
  const auto again = pool_.Load(SmallLoad("r1"));
  ASSERT_TRUE(first->ok() && again->ok());
  EXPECT_EQ((*first)->uid, (*again)->uid);
  const auto second = pool_.Load(SmallLoad("r2"));
  EXPECT_EQ(second->status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf(second->status()), AllOf(HasSubstr("small@1"), HasSubstr("Loading")));
  pool_.Restart();
  EXPECT_EQ((*pool_.Load(SmallLoad("r1")))->uid, (*first)->uid);
}

TEST_F(ControllerTest, TableThatDoesNotFitIsRefusedWithTheNumbers) {
  FakeNode a("a", 4 << 20);
  pool_.Join(a);
  const auto answer = pool_.Load(SmallLoad());
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(answer->status()),
              AllOf(HasSubstr("small@1"), HasSubstr("5.2MiB"), HasSubstr("a 2.0MiB"),
                    HasSubstr("start more pool nodes")));
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
}

TEST_F(ControllerTest, DryRunChangesNothing) {
  FakeNode a("a");
  pool_.Join(a);
  LoadRequest request = SmallLoad();
  request.dry_run = true;
  EXPECT_TRUE(pool_.Load(request)->ok());
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
  EXPECT_TRUE(a.commands.empty());
}

TEST_F(ControllerTest, FailedLoadMakesTheTableFailAndFreesWhatWasLoaded) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  b.load_error = absl::DataLossError("tensor is short");
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Settle({&a, &b});
  const TableEntry* table = pool_.Find(kSmall);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->record.state, TableState::kFailed);
  EXPECT_THAT(table->record.error, AllOf(HasSubstr("node b"), HasSubstr("tensor is short")));
  EXPECT_TRUE(a.held.empty());
  EXPECT_EQ(table->counts().serving + table->counts().draining + table->counts().loading, 0u);
  // Another attempt takes its place.
  b.load_error = absl::OkStatus();
  ASSERT_TRUE(pool_.Load(SmallLoad("r2", 2))->ok());
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.state().tables.size(), 1u);
}

TEST_F(ControllerTest, ReplicasThatDifferFailTheTable) {
  FakeNode a("a"), b("b");
  b.corrupt = true;
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kFailed);
  EXPECT_THAT(pool_.Find(kSmall)->record.error, HasSubstr("differ"));
}

TEST_F(ControllerTest, NodeThatDiesWhileLoadingIsReplaced) {
  FakeNode a("a"), b("b"), c("c");
  for (FakeNode* node : {&a, &b, &c}) pool_.Join(*node);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  std::vector<FakeNode*> loading, idle;
  for (FakeNode* node : {&a, &b, &c}) (node->commands.empty() ? idle : loading).push_back(node);
  ASSERT_EQ(loading.size(), 2u);
  pool_.Break(*loading[0]);
  pool_.Settle({loading[1], idle[0]}, 14);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(idle[0]->held.size(), 6u);
}

TEST_F(ControllerTest, TableWaitsAndSaysWhyWhenALoadingNodeDiesWithoutRoomElsewhere) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Break(b);
  pool_.Settle({&a}, 14);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kLoading);
  EXPECT_THAT(pool_.Find(kSmall)->record.error,
              AllOf(HasSubstr("waits"), HasSubstr("does not fit")));
  FakeNode c("c");
  pool_.Join(c);
  pool_.Settle({&a, &c});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.Find(kSmall)->record.error, "");
}

TEST_F(ControllerTest, CheckpointIsInspectedByANodeBeforeTheTableExists) {
  FakeNode a("a");
  pool_.Join(a);
  LoadRequest request = SmallLoad();
  request.spec.reset();
  request.source.kind = TableSource::Kind::kCheckpoint;
  request.source.checkpoint_dir = "/models/x";
  EXPECT_FALSE(pool_.Load(request));
  const CallId call = pool_.last_call();
  ASSERT_EQ(a.commands.size(), 1u);
  EXPECT_EQ(std::get<InspectSource>(a.commands[0].body).source.checkpoint_dir, "/models/x");
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
  pool_.Settle({&a});
  const auto answer = pool_.TakeAnswer(call);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
}

TEST_F(ControllerTest, InspectionThatFailsIsTheAnswer) {
  FakeNode a("a");
  pool_.Join(a);
  a.inspect_error = absl::NotFoundError("no config.json in /models/x");
  LoadRequest request = SmallLoad();
  request.source.kind = TableSource::Kind::kCheckpoint;
  request.source.checkpoint_dir = "/models/x";
  EXPECT_FALSE(pool_.Load(request));
  const CallId call = pool_.last_call();
  pool_.Settle({&a});
  const auto answer = pool_.TakeAnswer(call);
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(answer->status()), AllOf(HasSubstr("node a"), HasSubstr("config.json")));
}

TEST_F(ControllerTest, AnotherNodeInspectsWhenTheFirstDies) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  LoadRequest request = SmallLoad();
  request.source.kind = TableSource::Kind::kCheckpoint;
  request.source.checkpoint_dir = "/models/x";
  EXPECT_FALSE(pool_.Load(request));
  const CallId call = pool_.last_call();
  pool_.Break(a);
  pool_.Settle({&b});
  EXPECT_TRUE(pool_.TakeAnswer(call)->ok());
}

TEST_F(ControllerTest, WithoutNodesACheckpointCannotBeLoaded) {
  LoadRequest request = SmallLoad();
  request.source.kind = TableSource::Kind::kCheckpoint;
  request.source.checkpoint_dir = "/models/x";
  EXPECT_EQ(pool_.Load(request)->status().code(), absl::StatusCode::kUnavailable);
}

// ---- nodes that come back ----

TEST_F(ControllerTest, RestartedNodeLoadsItsReplicasAgainAndTheTableStaysReady) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const std::string digest = pool_.Find(kSmall)->record.content_digest;
  pool_.Break(b);
  FakeNode again("b", 1 << 30, "", "2");
  pool_.Join(again);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.Find(kSmall)->counts().loading, 6u);
  pool_.Settle({&a, &again});
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  EXPECT_EQ(again.held.size(), 6u);
  EXPECT_EQ(pool_.Find(kSmall)->record.content_digest, digest);
}

TEST_F(ControllerTest, ReloadedReplicaWithOtherBytesNeverServes) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  pool_.Break(b);
  FakeNode again("b", 1 << 30, "", "2");
  again.corrupt = true;  // the source has changed
  pool_.Join(again);
  pool_.Settle({&a, &again}, 8);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 6u);
  EXPECT_TRUE(again.held.empty());
  EXPECT_THAT(pool_.said, ::testing::Contains(HasSubstr("source has changed")));
  again.corrupt = false;
  pool_.Settle({&a, &again}, 20);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
}

TEST_F(ControllerTest, ControllerRestartKeepsTablesServingWithoutReloading) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const Epoch before = pool_.state().epoch;
  pool_.Restart();
  EXPECT_GT(pool_.state().epoch, before);
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  pool_.Join(a);
  pool_.Join(b);
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.Find(kSmall)->counts().serving, 12u);
  EXPECT_EQ(pool_.controller().counters().loads_commanded, 0u);
}

TEST_F(ControllerTest, ControllerRestartInTheMiddleOfALoadFinishesIt) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  a.Obey();
  pool_.Beat(a);  // a is done and its checksums are known, and then forgotten
  pool_.Restart();
  pool_.Join(a);
  pool_.Join(b);
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
}

TEST_F(ControllerTest, ReplicasThatNobodyKnowsAreRetired) {
  FakeNode a("a");
  LoadSmall({&a});
  const ShardKey stranger{SeededRandom(99).Bits<struct TableUidTag>(), ShardIndex(3)};
  a.held[stranger] = {pool_.Find(kSmall)->record, ReplicaState::kServing};
  pool_.Break(a);
  pool_.Join(a);
  pool_.Settle({&a});
  EXPECT_FALSE(a.held.contains(stranger));
  EXPECT_EQ(a.held.size(), 6u);
}

// ---- deleting ----

TEST_F(ControllerTest, DeletedTableIsGoneWhenEveryReplicaIsRetired) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  const auto answer = pool_.Delete(kSmall);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->state, TableState::kDeleting);
  EXPECT_EQ(pool_.Load(SmallLoad("r2"))->status().code(), absl::StatusCode::kAlreadyExists);
  a.Obey();
  pool_.Beat(a);
  EXPECT_EQ(pool_.state().tables.size(), 1u);
  b.Obey();
  pool_.Beat(b);
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(pool_.map().tables().empty());
  for (const char* prefix : {"table/", "chunk/", "sums/"}) {
    EXPECT_TRUE((*pool_.store().List(prefix)).entries.empty()) << prefix;
  }
  EXPECT_TRUE(pool_.Delete(kSmall, "d1")->ok());
  EXPECT_EQ(pool_.Delete(kSmall, "d2")->status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(pool_.Load(SmallLoad("r3", 2))->ok());
}

TEST_F(ControllerTest, DeleteSurvivesAControllerRestart) {
  FakeNode a("a");
  LoadSmall({&a});
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Restart();
  pool_.Join(a);
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(a.held.empty());
}

TEST_F(ControllerTest, DeleteIsAnsweredAlikeAfterTheTableIsGoneAndTheControllerRestarted) {
  FakeNode a("a");
  LoadSmall({&a});
  const TableUid uid = pool_.Find(kSmall)->record.uid;
  ASSERT_TRUE(pool_.Delete(kSmall, "d1")->ok());
  pool_.Settle({&a});
  ASSERT_TRUE(pool_.state().tables.empty());
  pool_.Restart();
  const auto again = pool_.Delete(kSmall, "d1");
  ASSERT_TRUE(again && again->ok()) << again->status();
  EXPECT_EQ((*again)->uid, uid);
  EXPECT_EQ((*again)->state, TableState::kDeleting);
  EXPECT_EQ(pool_.Delete(kSmall, "d2")->status().code(), absl::StatusCode::kNotFound);
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad("r9"))->ok());
  EXPECT_EQ((*pool_.Delete(kSmall, "d1"))->uid, uid);  // not the new table
  EXPECT_NE(pool_.StateOf(kSmall), TableState::kDeleting);
}

TEST_F(ControllerTest, DeleteDoesNotWaitForTheDead) {
  FakeNode a("a"), b("b");
  LoadSmall({&a, &b}, 2);
  pool_.Break(b);
  pool_.Settle({&a}, 12);
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  pool_.Join(b);  // it was only out of reach
  pool_.Settle({&a, &b});
  EXPECT_TRUE(b.held.empty());
}

TEST_F(ControllerTest, LoadCanBeDeletedInTheMiddle) {
  FakeNode a("a");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  a.Obey(false);
  ASSERT_TRUE(pool_.Delete(kSmall)->ok());
  pool_.Settle({&a});
  EXPECT_TRUE(pool_.state().tables.empty());
  EXPECT_TRUE(a.held.empty());
}

// ---- the store ----

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

// ---- everything at once ----

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
