// Candidates with clocks of their own on one store that loses answers, stops and wakes: never do
// two lead at one time.
#include "placement/ops/election.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engram/random.h"
#include "placement/store/memory_store.h"

namespace engram::placement {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLease = seconds(5);

class Candidate {
 public:
  Candidate(const std::string& name, MemoryStore* store)
      : store_(store), election_({name, name + ":7700", kLease}) {}

  // Everything that is due at `now`, on its own clock.
  void Run(Instant now) {
    now_ = now;
    Feed(Election::Tick{});
  }
  void Resign() { Feed(Election::Resign{}); }
  bool Holds(Instant now) const { return now < until_; }
  const std::string& leader() const { return leader_; }
  bool leads() const { return election_.leads(); }
  std::uint64_t term() const { return term_; }

  enum class Store { kAnswers, kLosesAnswers, kIsGone } mode = Store::kAnswers;

 private:
  void Feed(Election::Event event) {
    for (Election::Action& action : election_.OnEvent(now_, event)) {
      if (std::holds_alternative<Election::ReadRecord>(action)) {
        if (mode == Store::kAnswers) {
          Feed(Election::RecordRead{store_->Get(kLeaderKey)});
        } else {
          Feed(Election::RecordRead{absl::UnavailableError("lost")});
        }
      } else if (auto* write = std::get_if<Election::WriteRecord>(&action)) {
        absl::StatusOr<Revision> written = absl::UnavailableError("gone");
        if (mode != Store::kIsGone) written = store_->Txn(write->txn);
        if (mode == Store::kLosesAnswers) written = absl::UnknownError("lost");
        Feed(Election::RecordWritten{written});
      } else if (auto* lead = std::get_if<Election::Lead>(&action)) {
        until_ = lead->until;
        term_ = lead->term;
      } else {
        until_ = Instant();
        leader_ = std::get<Election::Follow>(action).leader;
      }
    }
  }

  MemoryStore* const store_;
  Election election_;
  Instant now_{};
  Instant until_{};
  std::string leader_;
  std::uint64_t term_ = 0;
};

class ElectionTest : public ::testing::Test {
 protected:
  void Pass(Duration time, std::vector<Candidate*> who) {
    for (const Instant end = now_ + time; now_ < end; now_ += milliseconds(50)) {
      for (Candidate* one : who) one->Run(now_);
    }
  }

  MemoryStore store_;
  Instant now_{seconds(1'000)};
  Candidate a_{"a", &store_}, b_{"b", &store_};
};

TEST_F(ElectionTest, OneLeadsAndTheOthersNameIt) {
  Pass(seconds(20), {&a_, &b_});
  EXPECT_TRUE(a_.leads());
  EXPECT_FALSE(b_.leads());
  EXPECT_EQ(b_.leader(), "a:7700");
  EXPECT_EQ(a_.term(), 1u);
}

TEST_F(ElectionTest, ALeaderThatIsGoneIsFollowedAfterItsLeaseAndMargin) {
  Pass(seconds(6), {&a_, &b_});
  Pass(kLease, {&b_});
  EXPECT_FALSE(b_.leads());
  Pass(seconds(3), {&b_});
  EXPECT_TRUE(b_.leads());
  EXPECT_EQ(b_.term(), 2u);
  // It wakes: before it has asked anybody it knows that it leads no more.
  EXPECT_FALSE(a_.Holds(now_));
  a_.Run(now_);
  EXPECT_FALSE(a_.leads());
  Pass(seconds(20), {&a_, &b_});
  EXPECT_FALSE(a_.leads());
  EXPECT_EQ(a_.leader(), "b:7700");
}

TEST_F(ElectionTest, AResignationIsFollowedAtOnce) {
  Pass(seconds(6), {&a_, &b_});
  a_.Resign();
  EXPECT_FALSE(a_.Holds(now_));
  Pass(seconds(1), {&b_});
  EXPECT_TRUE(b_.leads());
}

TEST_F(ElectionTest, WritesWithoutAnAnswerDoNotLengthenTheLease) {
  Pass(seconds(6), {&a_});
  ASSERT_TRUE(a_.leads());
  a_.mode = Candidate::Store::kLosesAnswers;
  Pass(kLease + milliseconds(50), {&a_});
  EXPECT_FALSE(a_.leads());
  a_.mode = Candidate::Store::kAnswers;
  Pass(seconds(2), {&a_});
  EXPECT_TRUE(a_.leads());
}

TEST_F(ElectionTest, ALostAnswerAloneDoesNotEndALeadership) {
  Pass(seconds(6), {&a_, &b_});
  a_.mode = Candidate::Store::kLosesAnswers;
  Pass(seconds(2), {&a_, &b_});
  a_.mode = Candidate::Store::kAnswers;
  Pass(seconds(10), {&a_, &b_});
  EXPECT_TRUE(a_.leads());
  EXPECT_EQ(a_.term(), 1u);
}

TEST_F(ElectionTest, AStoreThatIsGoneEndsItAndComingBackElectsAgain) {
  Pass(seconds(6), {&a_, &b_});
  a_.mode = b_.mode = Candidate::Store::kIsGone;
  Pass(seconds(10), {&a_, &b_});
  EXPECT_FALSE(a_.leads());
  EXPECT_FALSE(b_.leads());
  a_.mode = b_.mode = Candidate::Store::kAnswers;
  Pass(seconds(10), {&a_, &b_});
  EXPECT_NE(a_.leads(), b_.leads());
}

TEST_F(ElectionTest, NobodyTakesARecordThatNobodyCanRead) {
  ASSERT_TRUE(store_.Txn({{}, {{kLeaderKey, "\x09of a later version"}}, {}}).ok());
  Pass(seconds(30), {&a_, &b_});
  EXPECT_FALSE(a_.leads());
  EXPECT_FALSE(b_.leads());
}

TEST(LeaderRecordTest, ReadsAsItWasWritten) {
  const LeaderRecord record{"holder", "10.0.0.1:7700", 7, 8, kLease};
  EXPECT_EQ(*DecodeLeader(Encode(record)), record);
  EXPECT_FALSE(DecodeLeader("").ok());
  EXPECT_FALSE(DecodeLeader(Encode(record) + "x").ok());
}

// Clocks that differ by up to 1 %, stops of up to 20 s, stores that lose answers or are away.
TEST(ElectionFuzzTest, NeverDoTwoLead) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRandom random(seed);
    MemoryStore store;
    constexpr std::size_t kCandidates = 3;
    std::vector<std::unique_ptr<Candidate>> all;
    double rate[kCandidates];
    int asleep[kCandidates] = {};
    for (std::size_t i = 0; i < kCandidates; ++i) {
      all.push_back(
          std::make_unique<Candidate>(std::string(1, static_cast<char>('a' + i)), &store));
      rate[i] = 0.995 + 0.01 * static_cast<double>(random.Next() % 1'000) / 1'000;
    }
    int led = 0;
    for (int step = 0; step < 6'000; ++step) {  // of 50 ms
      int holders = 0;
      for (std::size_t i = 0; i < kCandidates; ++i) {
        const Instant now{Duration(static_cast<std::int64_t>(1e12 + step * 5e7 * rate[i]))};
        if (random.Next() % 400 == 0) asleep[i] = static_cast<int>(random.Next() % 400);
        if (random.Next() % 100 == 0) {
          all[i]->mode = static_cast<Candidate::Store>(random.Next() % 3);
        }
        if (asleep[i] > 0) {
          --asleep[i];
        } else {
          all[i]->Run(now);
        }
        holders += all[i]->Holds(now);
      }
      ASSERT_LE(holders, 1) << "seed " << seed << ", step " << step;
      led += holders;
    }
    EXPECT_GT(led, 1'000) << "seed " << seed;
  }
}

}  // namespace
}  // namespace engram::placement
