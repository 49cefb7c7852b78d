// Protection domains: what a key of one tenant's memory is worth on the way to another's.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fabric/memory.h"
#include "fabric/ofi/ofi_fabric.h"
#include "fabric/ofi/ofi_target.h"

namespace engram::fabric::ofi {
namespace {

constexpr std::uint32_t kPiece = 4096;

class OfiDomainsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto slab = Slab::Create({.bytes = 2 * kPiece, .name = "ofi-domains-test"});
    ASSERT_TRUE(slab.ok()) << slab.status();
    slab_ = *std::move(slab);
    std::fill_n(slab_->data(), kPiece, std::byte{0xaa});
    std::fill_n(slab_->data() + kPiece, kPiece, std::byte{0xbb});
    OfiTargetOptions options;
    options.provider.provider = GetParam();
    auto target = OfiTarget::Open(options);
    ASSERT_TRUE(target.ok()) << target.status();
    first_ = *std::move(target);
    first_->SetIncarnation(Incarnation(3));
    auto domain = first_->OpenDomain();
    ASSERT_TRUE(domain.ok()) << domain.status();
    second_ = *std::move(domain);
    OfiFabricOptions reading;
    reading.provider.provider = GetParam();
    auto fabric = OfiFabric::Open(reading);
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = *std::move(fabric);
    auto queue = fabric_->OpenQueue({});
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }
  PeerId Reach(const Target& target) {
    auto peer = fabric_->AddPeer({target.address(), {}, NodeId{"node"}, Incarnation(3)},
                                 SystemClock::Get().Now() + std::chrono::seconds(20));
    EXPECT_TRUE(peer.ok()) << peer.status();
    return peer.ok() ? *peer : PeerId();
  }
  ExposedRegion Expose(Target& target, std::uint64_t offset) {
    auto region = target.Expose({slab_.get(), offset, kPiece, 1});
    EXPECT_TRUE(region.ok()) << region.status();
    return region.ok() ? *region : ExposedRegion();
  }
  // What became of a read of the first bytes of `region` by way of `peer`, and the byte that
  // landed.
  std::pair<ReadStatus, std::byte> Read(PeerId peer, const ExposedRegion& region) {
    std::vector<std::byte> landing(64, std::byte{0});
    auto registered = fabric_->Register(landing, {});
    EXPECT_TRUE(registered.ok()) << registered.status();
    ReadOp op;
    op.region = {peer, region.address, region.length, region.key};
    op.length = static_cast<std::uint32_t>(landing.size());
    op.local[0] = {landing.data(), op.length, registered->get()};
    EXPECT_EQ(queue_->Submit({&op, 1}), 1u);
    ReadCompletion done;
    const Instant limit = SystemClock::Get().Now() + std::chrono::seconds(30);
    while (queue_->Poll({&done, 1}) == 0 && SystemClock::Get().Now() < limit) {
    }
    return {done.status, landing[0]};
  }

  std::unique_ptr<Slab> slab_;
  std::unique_ptr<Target> first_, second_;
  std::unique_ptr<OfiFabric> fabric_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(OfiDomainsTest, AKeyOfOneTenantIsRefusedOnTheWayToAnother) {
  const ExposedRegion of_first = Expose(*first_, 0), of_second = Expose(*second_, kPiece);
  const PeerId first = Reach(*first_), second = Reach(*second_);
  const auto [refused, landed] = Read(second, of_first);
  EXPECT_NE(refused, ReadStatus::kOk);
  EXPECT_EQ(landed, std::byte{0});
  EXPECT_EQ(Read(first, of_first), std::pair(ReadStatus::kOk, std::byte{0xaa}));
  EXPECT_EQ(Read(second, of_second), std::pair(ReadStatus::kOk, std::byte{0xbb}));
}

// A client of the tenant was revoked: the same memory under another key, the old one is hidden.
TEST_P(OfiDomainsTest, TheSameMemoryIsReadUnderANewKeyAndNotUnderTheOldOne) {
  const ExposedRegion before = Expose(*second_, kPiece);
  const PeerId peer = Reach(*second_);
  EXPECT_EQ(Read(peer, before), std::pair(ReadStatus::kOk, std::byte{0xbb}));
  const ExposedRegion after = Expose(*second_, kPiece);
  EXPECT_NE(before.key, after.key);
  EXPECT_EQ(Read(peer, before), std::pair(ReadStatus::kOk, std::byte{0xbb})) << "both, for a while";
  second_->Hide(before.key);
  EXPECT_EQ(Read(peer, after), std::pair(ReadStatus::kOk, std::byte{0xbb}));
  const auto [refused, landed] = Read(peer, before);
  EXPECT_NE(refused, ReadStatus::kOk);
  EXPECT_EQ(landed, std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(Providers, OfiDomainsTest, testing::Values("tcp;ofi_rxm", "shm"),
                         [](const auto& one) {
                           return std::string(one.param) == "shm" ? "Shm" : "TcpRxm";
                         });

}  // namespace
}  // namespace engram::fabric::ofi
