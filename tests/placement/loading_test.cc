// Tables from the request to Ready or Failed.
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using LoadingTest = ControllerTest;

TEST_F(LoadingTest, TableIsReadyWhenEveryReplicaServes) {
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

TEST_F(LoadingTest, ContentDigestIsThatOfAllBlocksInRowOrder) {
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

TEST_F(LoadingTest, SecondLoadOfANameIsRefusedUnlessItIsTheSameRequest) {
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

TEST_F(LoadingTest, TableThatDoesNotFitIsRefusedWithTheNumbers) {
  FakeNode a("a", 4 << 20);
  pool_.Join(a);
  const auto answer = pool_.Load(SmallLoad());
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(answer->status()),
              AllOf(HasSubstr("small@1"), HasSubstr("5.2MiB"), HasSubstr("a 2.0MiB"),
                    HasSubstr("start more pool nodes")));
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
}

TEST_F(LoadingTest, WithTooFewFailureDomainsItIsServedWithTheCopiesThatFitAndSaysWhatIsMissing) {
  FakeNode a("a", 1 << 30, "rack"), b("b", 1 << 30, "rack"), c("c", 1 << 30, "other");
  pool_.Join(a);
  pool_.Join(b);
  const auto answer = pool_.Load(SmallLoad("r1", 2));
  ASSERT_TRUE(answer->ok()) << answer->status();
  EXPECT_THAT((*answer)->error,
              AllOf(HasSubstr("6 of 12 copies have no place"),
                    HasSubstr("2 replicas need as many failure domains"), HasSubstr("are in 1")));
  pool_.Settle({&a, &b});
  const TableEntry* table = pool_.Find(kSmall);
  ASSERT_EQ(table->record.state, TableState::kReady);
  EXPECT_EQ(table->record.error, "");
  const Served served = pool_.state().ServedOf(*table);
  EXPECT_EQ(served.shards, 6u);
  EXPECT_EQ(served.copies_missing, 6u);
  EXPECT_THAT(pool_.state().table_notes.at(table->record.uid),
              AllOf(HasSubstr("6 copies, 5.2MiB"), HasSubstr("failure domain"),
                    HasSubstr("start one in another domain")));
  pool_.Join(c);
  pool_.Settle({&a, &b, &c}, 30);
  EXPECT_EQ(c.held.size(), 6u);
  EXPECT_EQ(pool_.state().ServedOf(*pool_.Find(kSmall)).copies_missing, 0u);
  EXPECT_TRUE(pool_.state().table_notes.empty());
  for (const auto& [key, held] : c.held) EXPECT_TRUE(held.source);
}

TEST_F(LoadingTest, WithRoomForOneCopyOfTwoItIsServedFromThatOneAndSaysHowManyBytesAreMissing) {
  FakeNode a("a"), b("b", 4 << 20), c("c");
  pool_.Join(a);
  pool_.Join(b);
  LoadRequest request = SmallLoad("r1", 2);
  request.options.tiers = {Tier::kDram};
  const auto answer = pool_.Load(request);
  ASSERT_TRUE(answer->ok()) << answer->status();
  EXPECT_THAT((*answer)->error, AllOf(HasSubstr("6 of 12 copies have no place"),
                                      HasSubstr("in dram"), HasSubstr("b 2.0MiB")));
  pool_.Settle({&a, &b}, 30);
  ASSERT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(a.held.size(), 6u);
  // What fits there went there meanwhile.
  const std::uint64_t missing = pool_.state().ServedOf(*pool_.Find(kSmall)).copies_missing;
  EXPECT_EQ(missing, 6 - b.held.size());
  EXPECT_GT(missing, 0u);
  EXPECT_GT(b.held.size(), 0u);
  EXPECT_THAT(
      pool_.state().table_notes.begin()->second,
      AllOf(HasSubstr("of dram"), HasSubstr("no node that may have them has so much free")));
  pool_.Join(c);
  pool_.Settle({&a, &b, &c}, 30);
  EXPECT_EQ(b.held.size() + c.held.size(), 6u);
  EXPECT_EQ(pool_.state().ServedOf(*pool_.Find(kSmall)).copies_missing, 0u);
}

TEST_F(LoadingTest, DryRunSaysWhichCopiesHaveNoPlace) {
  FakeNode a("a");
  pool_.Join(a);
  LoadRequest request = SmallLoad("r1", 3);
  request.dry_run = true;
  const auto answer = pool_.Load(request);
  ASSERT_TRUE(answer->ok());
  EXPECT_THAT((*answer)->error, HasSubstr("12 of 18 copies have no place"));
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
}

TEST_F(LoadingTest, ANodeWithoutRoomIsNotAskedAgainAndTheCopyIsLoadedElsewhere) {
  FakeNode a("a"), b("b"), c("c");
  for (FakeNode* node : {&a, &b, &c}) {
    node->load_error = absl::ResourceExhaustedError("arena is full");
    pool_.Join(*node);
  }
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  FakeNode* chosen = nullptr;
  for (FakeNode* node : {&a, &b, &c}) {
    if (!node->commands.empty()) chosen = node;
  }
  ASSERT_NE(chosen, nullptr);
  for (FakeNode* node : {&a, &b, &c}) {
    if (node != chosen) node->load_error = absl::OkStatus();
  }
  pool_.Settle({&a, &b, &c}, 3);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_TRUE(chosen->held.empty());
  const TierCapacity& tier = pool_.state().live.at(chosen->hello.node)->tiers.at(0);
  EXPECT_EQ(tier.trouble, "arena is full");
  pool_.Settle({&a, &b, &c}, 70);
  EXPECT_EQ(pool_.state().live.at(chosen->hello.node)->tiers.at(0).trouble, "");
}

TEST_F(LoadingTest, ATableForWhichNoNodeHasRoomAfterAllFailsWithTheNodesWords) {
  FakeNode a("a");
  a.load_error = absl::ResourceExhaustedError("arena is full");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  pool_.Settle({&a});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kFailed);
  EXPECT_THAT(pool_.Find(kSmall)->record.error,
              AllOf(HasSubstr("node a"), HasSubstr("arena is full")));
}

TEST_F(LoadingTest, ADrainTakesWhatIsNotLoadedYetElsewhere) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  a.Obey(false);
  pool_.Beat(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.SetIntent(a, NodeIntent::kDrain).ok());
  EXPECT_EQ(b.commands.size(), 1u);
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_TRUE(a.held.empty());
  EXPECT_EQ(b.held.size(), 6u);
}

TEST_F(LoadingTest, ADrainWithoutAnotherPlaceWaitsUntilTheTableIsReady) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  ASSERT_TRUE(pool_.Load(SmallLoad())->ok());
  a.Obey(false);
  pool_.Beat(a);
  ASSERT_TRUE(pool_.SetIntent(a, NodeIntent::kDrain).ok());
  pool_.Settle({&a});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kLoading);
  EXPECT_EQ(a.held.size(), 6u);
  EXPECT_THAT(pool_.state().live.at({"a"})->note, HasSubstr("once it is Ready"));
  a.FinishLoads();
  pool_.Settle({&a});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  pool_.Join(b);
  pool_.Settle({&a, &b}, 30);
  EXPECT_TRUE(a.held.empty());
  EXPECT_EQ(b.held.size(), 6u);
}

TEST_F(LoadingTest, DryRunChangesNothing) {
  FakeNode a("a");
  pool_.Join(a);
  LoadRequest request = SmallLoad();
  request.dry_run = true;
  EXPECT_TRUE(pool_.Load(request)->ok());
  EXPECT_EQ(pool_.Find(kSmall), nullptr);
  EXPECT_TRUE(a.commands.empty());
}

TEST_F(LoadingTest, FailedLoadMakesTheTableFailAndFreesWhatWasLoaded) {
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

TEST_F(LoadingTest, ReplicasThatDifferFailTheTable) {
  FakeNode a("a"), b("b");
  b.corrupt = true;
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Settle({&a, &b});
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kFailed);
  EXPECT_THAT(pool_.Find(kSmall)->record.error, HasSubstr("differ"));
}

TEST_F(LoadingTest, NodeThatDiesWhileLoadingIsReplaced) {
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

TEST_F(LoadingTest, AnotherCopyIsEnoughWhenALoadingNodeDiesWithoutRoomElsewhere) {
  FakeNode a("a"), b("b");
  pool_.Join(a);
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 2))->ok());
  pool_.Break(b);
  pool_.Settle({&a}, 14);
  EXPECT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  EXPECT_EQ(pool_.state().ServedOf(*pool_.Find(kSmall)).copies_missing, 6u);
  FakeNode c("c");
  pool_.Join(c);
  pool_.Settle({&a, &c}, 30);
  EXPECT_EQ(c.held.size(), 6u);
}

TEST_F(LoadingTest, TableWaitsAndSaysWhyWhenTheOnlyLoadingNodeDiesWithoutRoomElsewhere) {
  FakeNode a("a"), b("b");
  pool_.Join(b);
  ASSERT_TRUE(pool_.Load(SmallLoad("r1", 1))->ok());
  pool_.Break(b);
  a.hello.tiers[0].capacity_bytes = 4 << 20;
  pool_.Join(a);
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

TEST_F(LoadingTest, CheckpointIsInspectedByANodeBeforeTheTableExists) {
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

TEST_F(LoadingTest, InspectionThatFailsIsTheAnswer) {
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

TEST_F(LoadingTest, AnotherNodeInspectsWhenTheFirstDies) {
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

TEST_F(LoadingTest, WithoutNodesACheckpointCannotBeLoaded) {
  LoadRequest request = SmallLoad();
  request.source.kind = TableSource::Kind::kCheckpoint;
  request.source.checkpoint_dir = "/models/x";
  EXPECT_EQ(pool_.Load(request)->status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace engram::placement
