#include "client/shared_prefetcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/client/held_pool.h"

namespace engram::client {
namespace {

using std::chrono::seconds;

class SharedPrefetcherTest : public HeldPool, public testing::TestWithParam<bool> {
 protected:
  SharedPrefetcherTest() : HeldPool(SealKind::kCrc32c) {
    AddHolder("a").lease->Extend(SystemClock::Get().Now() + seconds(1000));
    Publish({"a"});
    RowReader::Options reader = Prefetcher::ReaderOptions();
    reader.table = table_;
    reader.board = &board_;
    reader.fabrics = {&fabric_};
    Prefetcher::Options options;
    options.tickets = 64;
    options.max_step_rows = 10'000;
    auto core = Prefetcher::Open(*RowReader::Open(reader), options);
    auto opened = SharedPrefetcher::Open(*std::move(core), GetParam());
    EXPECT_TRUE(opened.ok()) << opened.status();
    steps_ = *std::move(opened);
  }
  ~SharedPrefetcherTest() override { steps_.reset(); }

  static Instant In(Duration time) { return SystemClock::Get().Now() + time; }

  ReadPart PartOf(const std::vector<RowId>& ids, std::byte* out) {
    ReadPart part;
    part.ids = ids.data();
    part.run_rows = static_cast<std::uint32_t>(ids.size());
    part.row_limit = table_->layout.rows();
    part.out = out;
    part.row_stride = kRowBytes;
    return part;
  }

  std::unique_ptr<SharedPrefetcher> steps_;
};

TEST_P(SharedPrefetcherTest, ManyThreadsSubmitWaitCancelAndReleaseAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0}, rounds{0};
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      SeededRandom random(thread + 1);
      for (int round = 0; round < 200; ++round) {
        std::vector<RowId> ids;
        for (int i = 0; i < 48; ++i) ids.push_back(RowId(random.Below(spec_.Rows())));
        std::vector<std::byte> out(2 * ids.size() * kRowBytes);
        const StepLayer layers[] = {{PartOf(ids, out.data()), In(seconds(1))},
                                    {PartOf(ids, &out[48 * kRowBytes]), In(seconds(2))}};
        Ticket ticket;
        const StepKind kind = round % 3 == 0 ? StepKind::kPrefill : StepKind::kDecode;
        if (!steps_->Submit(Step{kind, layers, In(seconds(20))}, &ticket).ok()) {
          ++wrong;
          continue;
        }
        if (round % 5 == 0) steps_->Cancel(ticket, 1);
        if (!steps_->Wait(ticket, 0, In(seconds(20)))) ++wrong;
        if (steps_->Poll(ticket, 0) != LayerState::kReady) ++wrong;
        for (std::size_t i = 0; i < ids.size(); ++i)
          wrong += !IsGolden(&out[i * kRowBytes], ids[i]);
        if (!steps_->WaitAll(ticket, In(seconds(20))) || !steps_->PollAll(ticket)) ++wrong;
        const LayerState second = steps_->OutcomeOf(ticket, 1).state;
        if (second != LayerState::kReady && (round % 5 != 0 || second != LayerState::kCancelled))
          ++wrong;
        steps_->Release(ticket);
        ++rounds;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(rounds.load(), 800);
}

TEST_P(SharedPrefetcherTest, AThreadThatSleepsIsWokenWhenItsLayerIsReadyAndNotBefore) {
  const std::vector<RowId> ids = {RowId(1), RowId(2)};
  std::vector<std::byte> out(2 * kRowBytes);
  const StepLayer layers[] = {{PartOf(ids, out.data())}};
  Ticket held, quick;
  fabric_.queue->hold = true;
  ASSERT_TRUE(steps_->Submit(Step{StepKind::kDecode, layers, In(seconds(30))}, &held).ok());
  std::thread server([&] { EXPECT_TRUE(steps_->Wait(held, 0, In(seconds(30)))); });
  EXPECT_FALSE(steps_->Wait(held, 0, In(std::chrono::milliseconds(5))));
  steps_->Cancel(held, 0);
  server.join();
  EXPECT_EQ(steps_->OutcomeOf(held, 0).state, LayerState::kCancelled);
  EXPECT_EQ(steps_->OutcomeOf(held, 0).worst.status, ReadStatus::kFlushed);
  EXPECT_FALSE(quick);
}

TEST_P(SharedPrefetcherTest, EndsWithAStepInItsMiddle) {
  const std::vector<RowId> ids = {RowId(1), RowId(2)};
  std::vector<std::byte> out(2 * kRowBytes);
  const StepLayer layers[] = {{PartOf(ids, out.data())}};
  Ticket ticket;
  fabric_.queue->hold = true;
  ASSERT_TRUE(steps_->Submit(Step{StepKind::kDecode, layers, In(seconds(30))}, &ticket).ok());
  steps_.reset();
  EXPECT_TRUE(IsPoison(out.data()));
}

INSTANTIATE_TEST_SUITE_P(Serving, SharedPrefetcherTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Poller" : "Callers"; });

}  // namespace
}  // namespace engram::client
