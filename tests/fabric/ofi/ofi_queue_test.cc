// What a queue asks of its provider for a batch: messages, doorbells, completions.
#include "fabric/ofi/ofi_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "fabric/memory.h"
#include "fabric/ofi/ofi_target.h"

namespace engram::fabric::ofi {
namespace {

constexpr std::uint32_t kRow = 264;
constexpr std::uint32_t kRows = 4096;

class OfiQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    auto slab = Slab::Create({.bytes = std::uint64_t{kRow} * kRows, .name = "ofi-queue-test"});
    ASSERT_TRUE(slab.ok()) << slab.status();
    slab_ = *std::move(slab);
    auto target = OfiTarget::Open({.incarnation = Incarnation(3)});
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    auto region = target_->Expose({slab_.get(), 0, std::uint64_t{kRow} * kRows, kRow});
    ASSERT_TRUE(region.ok()) << region.status();
    auto fabric = OfiFabric::Open({});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = *std::move(fabric);
    auto peer = fabric_->AddPeer({target_->address(), {}, NodeId{"node"}, Incarnation(3)},
                                 SystemClock::Get().Now() + std::chrono::seconds(20));
    ASSERT_TRUE(peer.ok()) << peer.status();
    region_ = {*peer, region->address, region->length, region->key};
    auto queue = fabric_->OpenQueue({.depth = 16 * kRows, .wait = {}});
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_.reset(static_cast<OfiQueue*>(queue->release()));
  }
  // Submits `rows` reads in one call and waits for them.
  void Read(std::uint32_t rows) {
    std::vector<std::byte> landing(std::size_t{rows} * kRow);
    std::vector<ReadOp> ops(rows);
    for (std::uint32_t i = 0; i < rows; ++i) {
      ops[i].region = region_;
      ops[i].offset = std::uint64_t{i % kRows} * kRow;
      ops[i].length = kRow;
      ops[i].cookie = i;
      ops[i].local[0] = {landing.data() + std::size_t{i} * kRow, kRow, nullptr};
    }
    ASSERT_EQ(queue_->Submit(ops), rows);
    std::vector<ReadCompletion> done(rows);
    const Instant limit = SystemClock::Get().Now() + std::chrono::seconds(20);
    for (std::size_t ended = 0; ended < rows;) {
      const std::size_t count = queue_->Poll(done);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(done[i].status, ReadStatus::kOk);
      ended += count;
      ASSERT_LT(SystemClock::Get().Now(), limit);
    }
  }

  std::unique_ptr<Slab> slab_;
  std::unique_ptr<OfiTarget> target_;
  std::unique_ptr<OfiFabric> fabric_;
  RemoteRegion region_;
  std::unique_ptr<OfiQueue> queue_;
};

TEST_F(OfiQueueTest, ABatchThatFitsRingsOneDoorbell) {
  Read(1);  // connects
  const PostCounters before = queue_->posts();
  constexpr std::uint32_t kBatch = 96;
  Read(kBatch);
  const PostCounters& after = queue_->posts();
  const std::uint64_t messages = after.messages - before.messages;
  EXPECT_LE(messages, kBatch);
  EXPECT_GE(messages, kBatch / kMaxBundle);
  EXPECT_EQ(after.doorbells - before.doorbells, 1u);
  // One completion a message, however many rows it carries.
  EXPECT_EQ(after.completions - before.completions, messages);
}

TEST_F(OfiQueueTest, RegistrationsAreCountedWithTheirTime) {
  const RegistrationCounters before = Registrations();
  auto region = target_->Expose({slab_.get(), 0, std::uint64_t{kRow} * kRows, kRow});
  ASSERT_TRUE(region.ok()) << region.status();
  const RegistrationCounters after = Registrations();
  EXPECT_EQ(after.bytes - before.bytes, std::uint64_t{kRow} * kRows);
  EXPECT_GT(after.time, before.time);
}

TEST_F(OfiQueueTest, EveryBatchEndsWithADoorbell) {
  Read(1);
  const PostCounters before = queue_->posts();
  for (std::uint32_t rows : {1u, 2u, 3u, 24u}) Read(rows);
  EXPECT_EQ(queue_->posts().doorbells - before.doorbells, 4u);
}

// Nothing that is held back for a doorbell waits for room that only its own completion gives.
TEST_F(OfiQueueTest, ABatchLargerThanTheEndpointRingsWhenItIsFull) {
  const auto provider = Provider::Open({});
  ASSERT_TRUE(provider.ok()) << provider.status();
  const std::uint64_t at_once = (*provider)->messages_at_once();
  Read(1);
  const PostCounters before = queue_->posts();
  Read(16 * kRows);
  const std::uint64_t messages = queue_->posts().messages - before.messages;
  ASSERT_GT(messages, at_once);
  EXPECT_GE(queue_->posts().doorbells - before.doorbells, (messages + at_once - 1) / at_once);
  EXPECT_EQ(queue_->posts().completions - before.completions, messages);
}

// Every endpoint takes open files. One that cannot be had says so, and those that are there read
// on.
TEST_F(OfiQueueTest, ALimitOfEndpointsIsNamedAndEarlierLinksReadOn) {
  Read(1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // the lowest that is free
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto peer = fabric_->AddPeer({target_->address(), {}, NodeId{"node"}, Incarnation(3)},
                                     SystemClock::Get().Now() + std::chrono::seconds(20));
  Read(64);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(absl::IsUnavailable(peer.status())) << peer.status();
  EXPECT_THAT(std::string(peer.status().message()),
              testing::AllOf(testing::HasSubstr("fi_endpoint failed: Too many open files"),
                             testing::HasSubstr("1 endpoints are open")));
  EXPECT_TRUE(fabric_
                  ->AddPeer({target_->address(), {}, NodeId{"node"}, Incarnation(3)},
                            SystemClock::Get().Now() + std::chrono::seconds(20))
                  .ok());
}

}  // namespace
}  // namespace engram::fabric::ofi
