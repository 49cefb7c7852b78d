// A controller that comes and goes with a lease: what is asked of it in between.
#include "placement/ops/controller_loop.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>

#include "engram/not_leader.h"
#include "tests/placement/controller_fixture.h"

namespace engram::placement {
namespace {

using ::testing::HasSubstr;

// The loop's store, of which the test keeps what it needs.
class SharedStore final : public StateStore {
 public:
  explicit SharedStore(StateStore* store) : store_(store) {}
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override {
    return store_->Get(key);
  }
  absl::StatusOr<StoreListing> List(const std::string& prefix) override {
    return store_->List(prefix);
  }
  absl::StatusOr<Revision> Txn(const StoreTxn& txn) override {
    if (lose_next.exchange(false)) {
      (void)store_->Txn(txn);
      return absl::UnknownError("the answer was lost");
    }
    return store_->Txn(txn);
  }
  absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                    Revision after) override {
    return store_->Watch(prefix, after);
  }
  std::string Describe() const override { return "memory"; }

  std::atomic<bool> lose_next = false;

 private:
  StateStore* const store_;
};

class SeatTest : public ::testing::Test {
 protected:
  SeatTest() {
    auto store = std::make_unique<SharedStore>(&memory_);
    store_ = store.get();
    ControllerLoop::Seat seat;
    seat.lease = &lease_;
    seat.open = [](Instant now, StateStore* state, Random* random) {
      return Controller::Open(now, {}, state, random);
    };
    loop_ = std::make_unique<ControllerLoop>(std::move(store), std::make_unique<SeededRandom>(1),
                                             std::move(seat), &SystemClock::Get());
    ControllerLoop::Outlets outlets;
    outlets.send = [](LinkId, ControllerToNode) {};
    outlets.close = [this](LinkId, const absl::Status& why) { closed_.set_value(why); };
    outlets.map_changed = [] {};
    outlets.say = [](const std::string&) {};
    outlets.deposed = [](const absl::Status&) { FAIL() << "one of several ends its process"; };
    outlets.stepped_down = [this](const absl::Status&) { ++stepped_down_; };
    loop_->Start(std::move(outlets));
  }
  ~SeatTest() override { loop_->Stop(); }

  absl::StatusOr<TableRecord> Load(const std::string& request_id) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<TableRecord>>>();
    loop_->Load(SmallLoad(request_id), [answer](absl::StatusOr<TableRecord> table) {
      answer->set_value(std::move(table));
    });
    return answer->get_future().get();
  }
  void Hold() { lease_.Hold(SystemClock::Get().Now() + std::chrono::hours(1)); }
  void AwaitLeading() {
    while (!loop_->Refusal().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  MemoryStore memory_;
  LeaderLease lease_;
  SharedStore* store_;
  std::promise<absl::Status> closed_;
  std::atomic<int> stepped_down_ = 0;
  std::unique_ptr<ControllerLoop> loop_;
};

TEST_F(SeatTest, RefusesWithTheLeadersAddressUntilItHoldsTheLease) {
  lease_.Lose("10.0.0.2:7700");
  const absl::Status refused = Load("r1").status();
  EXPECT_EQ(LeaderNamedBy(refused), "10.0.0.2:7700");
  const LinkId link = loop_->NewLink();
  loop_->Post(LinkOpened{link});
  EXPECT_TRUE(IsNotLeader(closed_.get_future().get()));

  Hold();
  AwaitLeading();
  EXPECT_FALSE(IsNotLeader(Load("r1").status()));
  const FencingToken first = loop_->snapshot()->token;

  lease_.Lose("");
  EXPECT_TRUE(IsNotLeader(Load("r1").status()));
  while (stepped_down_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Hold();
  AwaitLeading();
  EXPECT_GT(loop_->snapshot()->token, first);
}

TEST_F(SeatTest, ALostAnswerMakesItReadTheStateAnew) {
  Hold();
  AwaitLeading();
  const FencingToken first = loop_->snapshot()->token;
  // A node registers; nobody hears whether that was stored.
  store_->lose_next = true;
  const LinkId link = loop_->NewLink();
  FakeNode node("n1");
  loop_->Post(LinkOpened{link});
  loop_->Post(NodeSaid{link, node.hello});
  while (stepped_down_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  AwaitLeading();
  EXPECT_GT(loop_->snapshot()->token, first);
  // It was: what is believed is what is stored.
  EXPECT_NE(loop_->snapshot()->FindNode({"n1"}), nullptr);
}

TEST(NotLeaderTest, NamesTheLeaderWhereThereIsOne) {
  EXPECT_EQ(LeaderNamedBy(NotLeader("[::1]:7700")), "[::1]:7700");
  EXPECT_EQ(LeaderNamedBy(NotLeader("")), std::nullopt);
  EXPECT_TRUE(IsNotLeader(NotLeader("")));
  EXPECT_FALSE(IsNotLeader(absl::UnavailableError("no answer")));
  EXPECT_EQ(LeaderNamedBy(absl::UnavailableError(
                "127.0.0.1:1: " + std::string(NotLeader("h:2").message()) + "; and so on")),
            "h:2");
}

TEST_F(ControllerTest, NodesAreNotSilentWhileTheControllerSlept) {
  FakeNode node("n1");
  pool_.Join(node);
  pool_.clock().Advance(std::chrono::seconds(30));
  pool_.controller().Slept(std::chrono::seconds(30));
  pool_.Feed(Tick{});
  EXPECT_TRUE(pool_.state().FindNode({"n1"})->alive);
}

TEST_F(ControllerTest, AChangeOfWhichNobodyKnowsWhetherItWasStoredDeposes) {
  pool_.store().FailWrites(absl::UnknownError("the answer was lost"));
  FakeNode node("n1");
  pool_.Join(node);
  EXPECT_TRUE(pool_.deposed);
}

}  // namespace
}  // namespace engram::placement
