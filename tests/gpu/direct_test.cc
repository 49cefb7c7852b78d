#include "client/gpu/direct_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "client/gpu/gpu_direct.h"
#include "client/gpu/plans.h"
#include "client/gpu/ring_service.h"
#include "tests/client/held_pool.h"
#include "tests/gpu/stand_in.h"

namespace engram::client::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A bus that holds NIC writes back: reads complete, their bytes arrive when somebody flushes, or
// with the completion where the bus keeps the order.
class Bus {
 public:
  bool keeps_order = false;
  void Post(std::byte* to, std::vector<std::byte> bytes) {
    posted_.push_back({to, std::move(bytes)});
  }
  void Arrive() {
    for (auto& [to, bytes] : posted_) std::memcpy(to, bytes.data(), bytes.size());
    posted_.clear();
  }

 private:
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> posted_;
};

class BusQueue final : public fabric::ReadQueue {
 public:
  BusQueue(std::unique_ptr<fabric::ReadQueue> inner, Bus* bus)
      : inner_(std::move(inner)), bus_(*bus) {}
  std::size_t Submit(std::span<const fabric::ReadOp> ops) override {
    // What was posted long ago has arrived by now.
    bus_.Arrive();
    std::size_t accepted = 0;
    for (fabric::ReadOp op : ops) {
      const auto number = static_cast<std::uint64_t>(flying_.size());
      flying_.push_back({op.cookie, op.local[0].data, std::vector<std::byte>(op.length)});
      op.local[0].data = flying_.back().bytes.data();
      op.cookie = number;
      if (inner_->Submit({&op, 1}) == 0) break;
      ++accepted;
    }
    return accepted;
  }
  std::size_t Poll(std::span<fabric::ReadCompletion> out) override {
    const std::size_t count = inner_->Poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      Flying& one = flying_[out[i].cookie];
      out[i].cookie = one.cookie;
      if (out[i].status == ReadStatus::kOk) bus_.Post(one.to, std::move(one.bytes));
    }
    if (bus_.keeps_order) bus_.Arrive();
    return count;
  }
  int ArmWait() override { return -1; }
  void Abandon(fabric::PeerId peer) override { inner_->Abandon(peer); }
  void Close() override { inner_->Close(); }

 private:
  struct Flying {
    std::uint64_t cookie;
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  std::unique_ptr<fabric::ReadQueue> inner_;
  Bus& bus_;
  std::vector<Flying> flying_;
};

// A fabric whose NIC can write to the device behind `bus`.
class BusFabric final : public fabric::Fabric {
 public:
  BusFabric(fabric::Fabric* inner, Bus* bus) : inner_(*inner), bus_(bus), info_(inner->info()) {
    info_.device_memory = true;
  }
  const fabric::FabricInfo& info() const override { return info_; }
  absl::StatusOr<fabric::PeerId> AddPeer(const fabric::PeerAddress& address,
                                         Instant deadline) override {
    return inner_.AddPeer(address, deadline);
  }
  void RemovePeer(fabric::PeerId peer) override { inner_.RemovePeer(peer); }
  absl::StatusOr<fabric::RemoteRegion> Import(const fabric::RemoteRegion& granted) override {
    return inner_.Import(granted);
  }
  void Release(const fabric::RemoteRegion& imported) override { inner_.Release(imported); }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(std::span<std::byte> memory,
                                                                 fabric::MemoryKind) override {
    return inner_.Register(memory, {});
  }
  absl::StatusOr<std::unique_ptr<fabric::ReadQueue>> OpenQueue(
      const QueueOptions& options) override {
    auto inner = inner_.OpenQueue(options);
    if (!inner.ok()) return inner.status();
    return std::make_unique<BusQueue>(*std::move(inner), bus_);
  }

 private:
  fabric::Fabric& inner_;
  Bus* const bus_;
  fabric::FabricInfo info_;
};

// A CPU in the GPU's role behind a bus; its kernels are threads.
class StandInDevice final : public LandingDevice {
 public:
  explicit StandInDevice(Bus* bus) : bus_(*bus) { facts_.name = "stand-in"; }
  ~StandInDevice() override {
    if (kernel_.joinable()) kernel_.join();
  }

  Facts facts() const override { return facts_; }
  fabric::MemoryKind kind() const override { return {fabric::MemoryKind::Place::kCuda, 0}; }
  bool Flush() override {
    ++flushes;
    if (flush_works) bus_.Arrive();
    return flush_says;
  }
  absl::StatusOr<std::span<std::byte>> TestMemory(std::size_t bytes) override {
    words_.resize(bytes / 8);
    return std::as_writable_bytes(std::span(words_));
  }
  Word* round_word() override { return &round_; }
  absl::Status StartCheck(std::uint64_t seed, Word round) override {
    kernel_ = std::thread([this, seed, round] {
      StandInModel model;
      AwaitReached(model, &round_, round, kForEver);
      stale_ = 0;
      for (std::size_t i = 0; i < words_.size(); ++i) stale_ += words_[i] != PatternWord(seed, i);
    });
    return absl::OkStatus();
  }
  absl::StatusOr<std::uint64_t> FinishCheck() override {
    kernel_.join();
    return stale_;
  }

  Facts facts_{.name = "", .can_land = true, .is_ordered = false, .can_flush = true};
  bool flush_works = true, flush_says = true;
  int flushes = 0;

 private:
  Bus& bus_;
  std::vector<std::uint64_t> words_;
  Word round_ = 0;
  std::uint64_t stale_ = 0;
  std::thread kernel_;
};

class DirectTestTest : public testing::Test {
 protected:
  absl::StatusOr<DirectLicence> Run(std::uint32_t rounds = 20) {
    DirectTestOptions options;
    options.fabric = &fabric_;
    options.target = target_.get();
    options.device = &device_;
    options.node = {"self"};
    options.rounds = rounds;
    return TestDirectLanding(options);
  }
  void ExpectRefused(const char* why) {
    const auto licence = Run();
    EXPECT_EQ(licence.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(licence.status().message()), HasSubstr(why));
  }
  Bus bus_;
  std::unique_ptr<fabric::Fabric> loopback_ = fabric::OpenLoopbackFabric();
  BusFabric fabric_{loopback_.get(), &bus_};
  StandInDevice device_{&bus_};
  std::unique_ptr<fabric::Target> target_ =
      *fabric::OpenLoopbackTarget({{"self"}, Incarnation(1), ""});
};

TEST_F(DirectTestTest, ABusThatKeepsTheOrderNeedsNoFlush) {
  bus_.keeps_order = device_.facts_.is_ordered = true;
  const auto licence = Run();
  ASSERT_TRUE(licence.ok()) << licence.status();
  EXPECT_FALSE(licence->needs_flush());
  EXPECT_EQ(device_.flushes, 0);
}

TEST_F(DirectTestTest, ABusThatDoesNotIsFlushedBeforeEveryWord) {
  const auto licence = Run();
  ASSERT_TRUE(licence.ok()) << licence.status();
  EXPECT_TRUE(licence->needs_flush());
  EXPECT_EQ(device_.flushes, 20);
  EXPECT_TRUE(licence->Flush());
}

TEST_F(DirectTestTest, AMachineThatClaimsAnOrderItDoesNotKeepIsFoundOut) {
  device_.facts_.is_ordered = true;
  ExpectRefused("words of older reads after the NIC had completed: nothing may land directly");
}

TEST_F(DirectTestTest, AFlushThatDoesNothingIsFoundOut) {
  device_.flush_works = false;
  ExpectRefused("words of older reads after the NIC had completed and the flush");
}

TEST_F(DirectTestTest, WhatTheMachineLacksIsSaidWithoutATry) {
  device_.facts_.can_flush = false;
  ExpectRefused("there is no flush");
  device_.facts_.can_land = false;
  ExpectRefused("no NIC may write to it");
  DirectTestOptions options;
  options.fabric = loopback_.get();
  options.target = target_.get();
  options.device = &device_;
  EXPECT_THAT(std::string(TestDirectLanding(options).status().message()),
              HasSubstr("not opened for memory of a GPU"));
}

TEST_F(DirectTestTest, AFlushThatFailsIsAReasonToo) {
  device_.flush_says = false;
  ExpectRefused("its flush fails");
}

// ---- steps ----

constexpr std::uint32_t kDirectLayers = 2, kDirectColumns = 2;
constexpr RowFormat kDirectFormat{32};

class DirectReadsTest : public HeldPool, public testing::Test {
 protected:
  explicit DirectReadsTest(SealKind seal = SealKind::kCrc32c) : HeldPool(seal) {
    AddHolder("a");
    Publish({"a"});
    RingShape shape;
    shape.layers = kDirectLayers;
    shape.columns = kDirectColumns;
    shape.max_tokens = 8;
    shape.row_bytes = kRowBytes;
    shape.row_stride = kRowBytes + kSealBytes;
    shape.failed_are_marked = true;
    memory_ = std::make_unique<RingMemory>(shape, 0);
    gpu_ = std::make_unique<StandIn>(memory_.get(), 0);
    gpu_->model().pause = [this] {
      clock_.Advance(milliseconds(1));
      service_->Serve();
    };
  }
  ~DirectReadsTest() override {
    service_.reset();
    reads_.reset();
  }

  DirectLicence Licence() {
    auto target = *fabric::OpenLoopbackTarget({{"self"}, Incarnation(1), ""});
    DirectTestOptions options;
    options.fabric = &bus_fabric_;
    options.target = target.get();
    options.device = &device_;
    options.node = {"self"};
    options.rounds = 3;
    return *TestDirectLanding(options);
  }
  absl::Status Open() {
    DirectReads::Options options;
    options.table = table_;
    options.board = &board_;
    options.fabrics = {&bus_fabric_};
    options.landing = {memory_->view.landing, memory_->view.shape.landing_bytes()};
    options.clock = &clock_;
    auto reads = DirectReads::Open(options, Licence());
    if (!reads.ok()) return reads.status();
    reads_ = *std::move(reads);
    RingService::Options service;
    service.clock = &clock_;
    service.layers = {{0, 2001}, {2001, 2005}};
    service_ = *RingService::Open(memory_->view, reads_.get(), service);
    return absl::OkStatus();
  }

  // What the kernel makes of the layer's rows; seals are checked by it alone.
  std::vector<std::uint16_t> Deliver(std::uint32_t layer, LayerEnd end) {
    const RingView& view = memory_->view;
    const std::uint32_t rows = 2 * kDirectColumns;
    std::vector<Bf16Output::Eight> out(rows * 4);
    const Bf16Output to{reinterpret_cast<std::uint16_t*>(out.data()), 32, kDirectFormat, {}};
    Landing from;
    from.rows = view.rows(0, layer);
    from.row_stride = view.shape.row_stride;
    from.failed = view.failed(0, layer);
    from.ids32 = reinterpret_cast<std::int32_t*>(view.ids(0)) + layer * kDirectColumns;
    from.id_columns = kDirectColumns;
    from.id_token_stride = kDirectLayers * kDirectColumns;
    from.check_seals = true;
    from.seal = seals_.view();
    from.first_row = layer == 0 ? 0 : 2001;
    for (std::uint32_t i = 0; i < rows; ++i) DeliverRow(from, i, !HasRows(end), to, i, OneLane());
    return {to.rows, to.rows + rows * 32};
  }
  // Rows of two tokens: 'g' golden, 'n' NaN, '0' zeros, '?' anything else.
  std::string Look(const std::vector<std::uint16_t>& got, std::uint32_t layer) {
    std::string out;
    for (std::uint32_t row = 0; row < got.size() / 32; ++row) {
      const std::int32_t id = ids_[(row / kDirectColumns * kDirectLayers + layer) * kDirectColumns +
                                   row % kDirectColumns];
      int golden = 0, nan = 0, zero = 0;
      for (std::uint32_t i = 0; i < 32; ++i) {
        const RowId whole(static_cast<std::uint64_t>(id) + (layer == 0 ? 0 : 2001));
        const std::uint16_t bits = got[row * 32 + i];
        golden += bits == DequantiseBf16(static_cast<std::uint8_t>(Golden(whole, i)),
                                         static_cast<std::uint8_t>(Golden(whole, 32)), {});
        nan += bits == kBf16Nan;
        zero += bits == 0;
      }
      out += nan == 32 ? 'n' : zero == 32 ? '0' : golden == 32 ? 'g' : '?';
    }
    return out;
  }
  std::string Step() {
    EXPECT_TRUE(gpu_->Post(ids_, 2, kForEver));
    std::string out;
    for (std::uint32_t layer = 0; layer < kDirectLayers; ++layer) {
      const LayerEnd end = gpu_->Wait(layer, kForEver);
      out += (end == LayerEnd::kReady ? "R:" : "F:") + Look(Deliver(layer, end), layer) + " ";
    }
    return out;
  }

  Bus bus_;
  BusFabric bus_fabric_{&fabric_, &bus_};
  StandInDevice device_{&bus_};
  SealArrays seals_{table_->uid, kRowBytes};
  std::unique_ptr<RingMemory> memory_;
  std::unique_ptr<StandIn> gpu_;
  std::unique_ptr<DirectReads> reads_;
  std::unique_ptr<RingService> service_;
  std::vector<std::int32_t> ids_ = {1, 2, 3, 4, 500, 600, 700, 800};
};

TEST_F(DirectReadsTest, RowsLandAreFlushedAndTheKernelFindsThemSealed) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Step(), "R:gggg R:gggg ");
  EXPECT_GE(device_.flushes, 2);
  ids_ = {2000, 0, 2004, 0, 9, 8, 7, 6};
  EXPECT_EQ(Step(), "R:gggg R:gggg ");
}

TEST_F(DirectReadsTest, SkippedRowsAreZerosAndRowsBeyondTheLayerAreNaN) {
  ASSERT_TRUE(Open().ok());
  ids_ = {1, -1, 2005, 4, 2001, 600, 700, -7};
  EXPECT_EQ(Step(), "F:g0ng F:ngg0 ");
}

TEST_F(DirectReadsTest, ARowThatIsWrongInThePoolIsFoundByTheKernel) {
  ASSERT_TRUE(Open().ok());
  Stored(*holders_[0], RowId(2))[7] ^= std::byte{1};
  EXPECT_EQ(Step(), "R:gngg R:gggg ");
}

TEST_F(DirectReadsTest, RowsOfAKilledNodeAreNaN) {
  ASSERT_TRUE(Open().ok());
  holders_[0]->target.reset();
  EXPECT_EQ(Step(), "F:nnnn F:nnnn ");
}

TEST_F(DirectReadsTest, RowsReadUnderALeaseThatRanOutAreNaN) {
  ASSERT_TRUE(Open().ok());
  clock_.Advance(seconds(101));
  EXPECT_EQ(Step(), "F:nnnn F:nnnn ");
}

TEST_F(DirectReadsTest, AtTheDeadlineWhatIsOutstandingIsFlushed) {
  ASSERT_TRUE(Open().ok());
  fabric_.queue->hold = true;
  EXPECT_EQ(Step(), "F:nnnn F:nnnn ");
  EXPECT_FALSE(fabric_.queue->abandoned.empty());
  fabric_.queue->hold = false;
  EXPECT_EQ(Step(), "R:gggg R:gggg ");
}

TEST_F(DirectReadsTest, ASlotRungAgainLandsNothingOfTheOlderStep) {
  ASSERT_TRUE(Open().ok());
  fabric_.queue->hold = true;
  ASSERT_TRUE(gpu_->Post(ids_, 2, kForEver));
  service_->Serve();
  EXPECT_EQ(gpu_->Wait(0, 3), LayerEnd::kTimedOut);
  ids_ = {9, 8, 7, 6, 5, 4, 3, 2};
  fabric_.queue->hold = false;
  EXPECT_EQ(Step(), "R:gggg R:gggg ");
  EXPECT_EQ(service_->counters().superseded, 1u);
  EXPECT_EQ(fabric_.queue->held(), 0u);
}

class UnsealedDirectReadsTest : public DirectReadsTest {
 protected:
  UnsealedDirectReadsTest() : DirectReadsTest(SealKind::kNone) {}
};

TEST_F(UnsealedDirectReadsTest, ATableWithoutSealsIsRefused) {
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--seal crc32c"));
}

}  // namespace
}  // namespace engram::client::gpu
