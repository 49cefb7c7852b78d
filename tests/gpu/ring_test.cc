#include "client/gpu/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <thread>

#include "client/gpu/prefetcher_reads.h"
#include "client/gpu/ring_poller.h"
#include "client/gpu/ring_service.h"
#include "tests/client/held_pool.h"
#include "tests/gpu/stand_in.h"

namespace engram::client::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kLayers = 2, kColumns = 2, kMaxTokens = 8;
constexpr RowFormat kFormat{32};  // of a row's 40 bytes the first 33

RingShape Shape(std::uint32_t slots = 2) {
  RingShape shape;
  shape.slots = slots;
  shape.layers = kLayers;
  shape.columns = kColumns;
  shape.max_tokens = kMaxTokens;
  shape.row_bytes = shape.row_stride = kRowBytes;
  return shape;
}

class RingTest : public HeldPool, public testing::Test {
 protected:
  RingTest() : HeldPool(SealKind::kCrc32c) {
    AddHolder("a");
    Publish({"a"});
  }
  ~RingTest() override {
    poller_.reset();
    service_.reset();
    reads_.reset();
    prefetcher_.reset();
  }

  void Open(Word first, std::uint32_t slots = 2, std::uint32_t tickets = 4) {
    RowReader::Options reader = ReaderOptions(0);
    reader.clock = time_;
    reader.max_rows = 64;
    reader.slots = 6;
    Prefetcher::Options options;
    options.tickets = tickets;
    options.max_layers = kLayers;
    options.max_step_rows = 1000;
    options.prefill_slots = 1;
    prefetcher_ = *Prefetcher::Open(*RowReader::Open(reader), options);
    reads_ = std::make_unique<PrefetcherReads>(prefetcher_.get());
    memory_ = std::make_unique<RingMemory>(Shape(slots), first);
    service_ = *RingService::Open(memory_->view, reads_.get(), ServiceOptions());
    for (std::uint32_t i = 0; i < slots; ++i) gpus_.emplace_back(memory_.get(), i);
  }
  RingService::Options ServiceOptions() {
    RingService::Options options;
    options.clock = time_;
    options.timeout = timeout_;
    options.layers = {{0, 2001}, {2001, 2005}};  // rows of the two layers of SmallSpec
    return options;
  }
  // The GPU's waits make the client go on: everything on one thread.
  void ServeWhileWaiting() {
    for (StandIn& gpu : gpus_) gpu.model().pause = [this] { service_->Serve(); };
  }
  // As above, and the client's time passes.
  void ServeAndAge() {
    for (StandIn& gpu : gpus_) {
      gpu.model().pause = [this] {
        clock_.Advance(milliseconds(1));
        service_->Serve();
      };
    }
  }

  static std::vector<std::int32_t> Ids(std::uint64_t seed, std::uint32_t tokens) {
    std::vector<std::int32_t> ids;
    SeededRandom random(seed);
    for (std::uint32_t i = 0; i < tokens * kLayers * kColumns; ++i)
      ids.push_back(static_cast<std::int32_t>(random.Below(2001)));
    return ids;
  }
  // How many elements of the layer are not those of `ids`; rows with a negative id are zeros.
  static int WrongElements(const std::vector<std::uint16_t>& got,
                           const std::vector<std::int32_t>& ids, std::uint32_t layer) {
    int wrong = 0;
    for (std::size_t row = 0; row < got.size() / kFormat.value_bytes; ++row) {
      const std::int32_t id = ids[(row / kColumns * kLayers + layer) * kColumns + row % kColumns];
      const RowId whole(static_cast<std::uint64_t>(id) + (layer == 0 ? 0 : 2001));
      for (std::uint32_t i = 0; i < kFormat.value_bytes; ++i) {
        const std::uint16_t want =
            id < 0 ? 0
                   : DequantiseBf16(static_cast<std::uint8_t>(Golden(whole, i)),
                                    static_cast<std::uint8_t>(Golden(whole, 32)), {});
        wrong += got[row * kFormat.value_bytes + i] != want;
      }
    }
    return wrong;
  }
  static bool AllNaN(const std::vector<std::uint16_t>& got) {
    return std::all_of(got.begin(), got.end(), [](std::uint16_t bits) { return bits == kBf16Nan; });
  }

  const Clock* time_ = &clock_;
  Duration timeout_ = seconds(1);
  std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<PrefetcherReads> reads_;
  std::unique_ptr<RingMemory> memory_;
  std::unique_ptr<RingService> service_;
  std::unique_ptr<RingPoller> poller_;
  std::vector<StandIn> gpus_;
};

TEST_F(RingTest, AStepArrivesWithBothLayersPostedBeforeEitherIsWaitedFor) {
  Open(0);
  ServeWhileWaiting();
  auto ids = Ids(1, 3);
  ids[5] = -1;
  ASSERT_TRUE(gpus_[0].Post(ids, 3, kForEver));
  EXPECT_EQ(gpus_[0].Seen(0, 1), LayerEnd::kPending);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(gpus_[0].Wait(layer, kForEver), LayerEnd::kReady);
    EXPECT_EQ(WrongElements(gpus_[0].Deliver(layer, kFormat, 3), ids, layer), 0);
    EXPECT_EQ(gpus_[0].Seen(layer, 1), LayerEnd::kReady);
  }
  EXPECT_EQ(service_->counters().steps, 1u);
  EXPECT_EQ(service_->counters().layers_ready, 2u);
  EXPECT_FALSE(service_->busy());
}

TEST_F(RingTest, LayersAreToldOneByOne) {
  Open(7);
  const auto ids = Ids(2, 2);
  fabric_.queue->hold = true;
  ASSERT_TRUE(gpus_[0].Post(ids, 2, 1));
  service_->Serve();
  fabric_.queue->ReleaseSome(2 * kColumns);  // layer 0
  service_->Serve();
  EXPECT_EQ(gpus_[0].Wait(0, 1), LayerEnd::kReady);
  EXPECT_EQ(gpus_[0].Wait(1, 3), LayerEnd::kTimedOut);
  EXPECT_EQ(WrongElements(gpus_[0].Deliver(0, kFormat, 2), ids, 0), 0);
  EXPECT_TRUE(AllNaN(gpus_[0].Deliver(1, kFormat, 2)));
}

TEST_F(RingTest, IdsAreNotOverwrittenBeforeTheClientHasCopiedThem) {
  Open(0);
  const auto first = Ids(3, 2), second = Ids(4, 2), third = Ids(5, 2);
  ASSERT_TRUE(gpus_[0].Post(first, 2, 5));
  // A client that stalls: the next step finds the ring full, gives up in bounded time, and says so.
  EXPECT_FALSE(gpus_[0].Post(second, 2, 5));
  EXPECT_EQ(gpus_[0].Wait(0, 1000), LayerEnd::kNotRung);
  EXPECT_LT(gpus_[0].model().looks, 100u) << "what was not rung is not waited for";
  EXPECT_EQ(gpus_[0].Seen(0, gpus_[0].step()), LayerEnd::kNotRung);
  EXPECT_TRUE(AllNaN(gpus_[0].Deliver(0, kFormat, 2)));
  // The first step's ids are what the client finds when it comes back.
  while (service_->Serve()) {
  }
  EXPECT_EQ(service_->counters().steps, 1u);
  EXPECT_EQ(memory_->view.words(0).done_seq[1], 1u);
  // And the ring goes on, with the sequence number of the step that was lost left out.
  ServeWhileWaiting();
  ASSERT_TRUE(gpus_[0].Post(third, 2, 5));
  EXPECT_EQ(gpus_[0].step(), 3u);
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kReady);
  EXPECT_EQ(WrongElements(gpus_[0].Deliver(1, kFormat, 2), third, 1), 0);
}

TEST_F(RingTest, ASlotRungAgainAfterATimeOutGetsTheNewRowsAndNothingOfTheOldStepLands) {
  Open(0xffffffff);
  const auto old_ids = Ids(6, 4), ids = Ids(7, 4);
  fabric_.queue->hold = true;
  ASSERT_TRUE(gpus_[0].Post(old_ids, 4, 1));
  service_->Serve();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(gpus_[0].Wait(layer, 4), LayerEnd::kTimedOut);
    EXPECT_EQ(gpus_[0].Seen(layer, 0), LayerEnd::kTimedOut);
    EXPECT_TRUE(AllNaN(gpus_[0].Deliver(layer, kFormat, 4)));
  }
  ASSERT_TRUE(gpus_[0].Post(ids, 4, 1));
  service_->Serve();
  EXPECT_EQ(service_->counters().superseded, 1u);
  EXPECT_EQ(fabric_.queue->abandoned.size(), 1u) << "the old reads were flushed";
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  ServeWhileWaiting();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(gpus_[0].Wait(layer, kForEver), LayerEnd::kReady);
    EXPECT_EQ(WrongElements(gpus_[0].Deliver(layer, kFormat, 4), ids, layer), 0);
  }
}

TEST_F(RingTest, SequenceNumbersWrapAroundAndTwoSlotsAreServedInAnyOrder) {
  Open(0xfffffffd);
  ServeWhileWaiting();
  for (std::uint64_t step = 0; step < 8; ++step) {
    const auto even = Ids(2 * step, 8), odd = Ids(2 * step + 1, 5);
    ASSERT_TRUE(gpus_[0].Post(even, 8, kForEver));
    ASSERT_TRUE(gpus_[1].Post(odd, 5, kForEver, 1, 2));
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(gpus_[1].Wait(layer, kForEver), LayerEnd::kReady);
      ASSERT_EQ(gpus_[0].Wait(layer, kForEver), LayerEnd::kReady);
      ASSERT_EQ(WrongElements(gpus_[0].Deliver(layer, kFormat, 8), even, layer), 0);
      ASSERT_EQ(WrongElements(gpus_[1].Deliver(layer, kFormat, 5), odd, layer), 0);
    }
    EXPECT_EQ(gpus_[0].Seen(1, static_cast<Word>(0xfffffffe + step)), LayerEnd::kReady);
    EXPECT_EQ(gpus_[0].Seen(1, static_cast<Word>(0xffffffff + step)), LayerEnd::kPending);
  }
  EXPECT_EQ(gpus_[0].step(), 5u);
}

TEST_F(RingTest, RowsOfAKilledNodeAreNaNAndTheLayerSaysSo) {
  Open(0);
  ServeAndAge();
  const auto ids = Ids(8, 2);
  holders_[0]->target.reset();
  ASSERT_TRUE(gpus_[0].Post(ids, 2, kForEver));
  EXPECT_EQ(gpus_[0].Wait(0, kForEver), LayerEnd::kRowsFailed);
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kRowsFailed);
  EXPECT_TRUE(AllNaN(gpus_[0].Deliver(0, kFormat, 2)));
  EXPECT_TRUE(AllNaN(gpus_[0].Deliver(1, kFormat, 2)));
  EXPECT_EQ(service_->counters().layers_failed, 2u);
}

TEST_F(RingTest, AnIdBeyondTheLayerIsNaNAloneAndTheOthersArrive) {
  Open(0);
  ServeAndAge();
  auto ids = Ids(9, 2);
  ids[1] = static_cast<std::int32_t>(kNoSuchRow);
  ASSERT_TRUE(gpus_[0].Post(ids, 2, kForEver));
  EXPECT_EQ(gpus_[0].Wait(0, kForEver), LayerEnd::kRowsFailed);
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kReady);
  auto rows = gpus_[0].Deliver(0, kFormat, 2);
  EXPECT_TRUE(AllNaN({rows.begin() + 32, rows.begin() + 64}));
  EXPECT_EQ(WrongElements(rows, ids, 0), 32);
}

TEST_F(RingTest, WhatTheDoorbellAsksForIsNotBelieved) {
  Open(0);
  ServeWhileWaiting();
  const auto ids = Ids(10, 1);
  // More tokens than fit, then a kind that does not exist.
  ASSERT_TRUE(gpus_[0].Post(ids, kMaxTokens + 1, kForEver));
  EXPECT_EQ(gpus_[0].Wait(0, kForEver), LayerEnd::kNotRead);
  ASSERT_TRUE(gpus_[0].Post(ids, 1, kForEver, 1, 3));
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kNotRead);
  EXPECT_TRUE(AllNaN(gpus_[0].Deliver(1, kFormat, 1)));
  EXPECT_EQ(service_->counters().refused, 2u);
  // A step without tokens needs no row.
  ASSERT_TRUE(gpus_[0].Post(ids, 0, kForEver));
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kReady);
}

TEST_F(RingTest, AStepForWhichThereIsNoRoomIsTakenLater) {
  Open(0, 3, 1);
  const auto ids = Ids(11, 1), other = Ids(12, 1);
  fabric_.queue->hold = true;
  ASSERT_TRUE(gpus_[0].Post(ids, 1, 1));
  ASSERT_TRUE(gpus_[1].Post(other, 1, 1));
  service_->Serve();
  EXPECT_GT(service_->counters().busy, 0u);
  EXPECT_EQ(service_->counters().steps, 1u);
  fabric_.queue->hold = false;
  fabric_.queue->Release();
  ServeWhileWaiting();
  EXPECT_EQ(gpus_[0].Wait(1, kForEver), LayerEnd::kReady);
  EXPECT_EQ(gpus_[1].Wait(1, kForEver), LayerEnd::kReady);
  EXPECT_EQ(WrongElements(gpus_[1].Deliver(1, kFormat, 1), other, 1), 0);
}

TEST_F(RingTest, ClosingEndsEveryWaitOfTheGpu) {
  Open(0);
  const auto ids = Ids(13, 1);
  fabric_.queue->hold = true;
  ASSERT_TRUE(gpus_[0].Post(ids, 1, 1));
  service_->Serve();
  ASSERT_TRUE(gpus_[1].Post(ids, 1, 1));  // rung, and never taken
  service_->Close();
  for (StandIn& gpu : gpus_) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(gpu.Wait(layer, 1), LayerEnd::kNotRead);
      EXPECT_TRUE(AllNaN(gpu.Deliver(layer, kFormat, 1)));
    }
  }
  // Later steps end by their time-out.
  EXPECT_TRUE(gpus_[0].Post(ids, 1, 3));
  EXPECT_EQ(gpus_[0].Wait(0, 3), LayerEnd::kTimedOut);
  EXPECT_FALSE(service_->Serve());
}

TEST_F(RingTest, ShapesThatCannotBeAreRefused) {
  Open(0);
  const auto refused = [&](auto change) {
    RingView view = memory_->view;
    change(view.shape);
    return RingService::Open(view, reads_.get(), ServiceOptions()).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](RingShape& shape) { shape.slots = 1; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.layers = 0; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.layers = 1; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.layers = kMaxRingLayers + 1; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.columns = 0; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.max_tokens = 0; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.row_bytes = 0; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.row_stride = shape.row_bytes - 8; }));
  EXPECT_TRUE(refused([](RingShape& shape) { shape.row_stride += 4; }));
  EXPECT_FALSE(refused([](RingShape&) {}));
}

// ---- threads in the GPU's role ----

class RingThreadsTest : public RingTest {
 protected:
  struct Tally {
    int wrong = 0, ready = 0, failed = 0, timed_out = 0, not_rung = 0;
  };
  // A stream that runs steps with waits too short for some of them, as if the GPU stalled, ran
  // ahead, or found the client asleep.
  void RunSteps(std::uint32_t slot, int steps, bool may_fail, Tally* tally) {
    SeededRandom random(slot + 100);
    StandIn& gpu = gpus_[slot];
    for (int step = 0; step < steps; ++step) {
      if (slot == 0 && at_step_ != nullptr) at_step_(step);
      const Word tokens = 1 + static_cast<Word>(random.Below(kMaxTokens));
      const auto ids = Ids(random.Next(), tokens);
      const auto limit = [&] { return random.Below(4) == 0 ? random.Below(30) : kForEver; };
      const Word blocks = random.Below(16) == 0 ? 3 : 1;
      const Word kind = static_cast<Word>(random.Below(3));
      gpu.Post(ids, tokens, blocks == 1 ? limit() : kForEver, blocks, kind);
      for (std::uint64_t stall = random.Below(20); stall > 0; --stall) std::this_thread::yield();
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const LayerEnd end = gpu.Wait(layer, limit());
        const auto rows = gpu.Deliver(layer, kFormat, tokens);
        tally->wrong += gpu.Seen(layer, gpu.step()) != end;
        tally->ready += end == LayerEnd::kReady;
        tally->failed += end == LayerEnd::kRowsFailed;
        tally->timed_out += end == LayerEnd::kTimedOut;
        tally->not_rung += end == LayerEnd::kNotRung;
        if (end == LayerEnd::kReady) {
          tally->wrong += WrongElements(rows, ids, layer);
        } else if (end != LayerEnd::kRowsFailed) {
          tally->wrong += !AllNaN(rows);
        } else {
          tally->wrong += !may_fail || AnyWrongButNaN(rows, ids, layer);
        }
      }
    }
  }
  static bool AnyWrongButNaN(const std::vector<std::uint16_t>& rows,
                             const std::vector<std::int32_t>& ids, std::uint32_t layer) {
    std::vector<std::uint16_t> row(32);
    for (std::size_t at = 0; at < rows.size(); at += 32) {
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(at), 32, row.begin());
      const std::size_t index = at / 32;
      const std::int32_t id =
          ids[(index / kColumns * kLayers + layer) * kColumns + index % kColumns];
      if (AllNaN(row)) continue;
      std::vector<std::int32_t> one(kLayers * kColumns, id);
      if (WrongElements(row, one, layer) != 0) return true;
    }
    return false;
  }
  Tally RunThreads(int steps, bool may_fail) {
    std::vector<Tally> tallies(gpus_.size());
    std::vector<std::thread> threads;
    for (std::uint32_t slot = 0; slot < gpus_.size(); ++slot)
      threads.emplace_back(
          [=, this, &tallies] { RunSteps(slot, steps, may_fail, &tallies[slot]); });
    for (std::thread& thread : threads) thread.join();
    Tally sum;
    for (const Tally& tally : tallies) {
      sum.wrong += tally.wrong;
      sum.ready += tally.ready;
      sum.failed += tally.failed;
      sum.timed_out += tally.timed_out;
      sum.not_rung += tally.not_rung;
    }
    return sum;
  }
  std::function<void(int)> at_step_;  // of slot 0
};

TEST_F(RingThreadsTest, NoRowIsWrongWhateverStallsAndTimesOutAcrossTheWrapAround) {
  Open(0xffffffd0, 3);
  poller_ = *RingPoller::Start(service_.get(), {});
  const Tally tally = RunThreads(80, false);
  poller_->Stop();
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(tally.failed, 0);
  EXPECT_GT(tally.ready, 0);
  EXPECT_EQ(tally.ready + tally.timed_out + tally.not_rung, 3 * 80 * 2);
  for (const StandIn& gpu : gpus_) EXPECT_EQ(gpu.step(), 0xffffffd0u + 80);
}

TEST_F(RingThreadsTest, NodesKilledInTheMiddleOfStepsLeaveRowsOfTheOtherReplicaOrNaN) {
  time_ = &SystemClock::Get();
  timeout_ = milliseconds(50);
  AddHolder("b");
  for (const auto& holder : holders_) holder->lease->Extend(time_->Now() + seconds(1000));
  Publish({"a", "b"});
  Open(0, 2);
  at_step_ = [this](int step) {
    if (step == 20) holders_[0]->target.reset();
    if (step == 50) holders_[1]->target.reset();
  };
  poller_ = *RingPoller::Start(service_.get(), {});
  const Tally tally = RunThreads(60, true);
  poller_->Stop();
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_GT(tally.ready, 0);
  EXPECT_GT(tally.failed + tally.timed_out, 0);
}

TEST_F(RingThreadsTest, APollerThatNapsMissesNothing) {
  Open(0);
  RingPoller::Options options;
  options.spin = Duration{};
  options.nap = std::chrono::microseconds(1);
  poller_ = *RingPoller::Start(service_.get(), options);
  const Tally tally = RunThreads(40, false);
  poller_->Stop();
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_GT(tally.ready, 0);
}

}  // namespace
}  // namespace engram::client::gpu
