// Owners and readers of one device on different hosts: who may have it, when, and what readers see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engram/session.h"
#include "fabric/dax/device_peer.h"
#include "fabric/dax/device_target.h"
#include "fabric/dax/owned_device.h"
#include "fabric/mapped/mapped_fabric.h"
#include "fabric/memory.h"
#include "tests/fabric/dax/stand_in.h"

namespace engram::fabric::dax {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kDeviceBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kReplica = 64 * 1024;
constexpr Duration kLease = std::chrono::seconds(10);
const Instant kNever = Instant::max();

Ownership Node(const std::string& name, const std::string& take_over = "") {
  Ownership out{NodeId{name}, kLease, {}};
  if (!take_over.empty()) out.take_over.push_back(take_over);
  return out;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class OwnerTest : public testing::Test {
 protected:
  // Opens, claims and gives an incarnation, without waiting.
  std::shared_ptr<OwnedDevice> Own(const Ownership& wanted, std::uint64_t incarnation) {
    auto device = OwnedDevice::Open(file_.device(), wanted);
    EXPECT_TRUE(device.ok()) << device.status();
    EXPECT_TRUE((*device)->Claim().ok());
    EXPECT_TRUE((*device)->SetIncarnation(Incarnation(incarnation)).ok());
    return *std::move(device);
  }
  StandIn file_{kDeviceBytes};
};

TEST_F(OwnerTest, ABlankDeviceIsTakenAtOnce) {
  auto device = OwnedDevice::Open(file_.device(), Node("node-a"));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->found(), "blank");
  EXPECT_EQ((*device)->wait(), Duration::zero());
  EXPECT_TRUE((*device)->Claim().ok());
}

TEST_F(OwnerTest, NothingIsWrittenBeforeTheClaim) {
  const auto before = file_.Load(0, kDeviceBytes);
  auto device = OwnedDevice::Open(file_.device(), Node("node-a"));
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->StillQuiet().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*device)->Beat()));
  EXPECT_EQ(file_.Load(0, kDeviceBytes), before);
}

TEST_F(OwnerTest, WhoLooksIsToldTheOwnerWithoutTakingIt) {
  EXPECT_EQ(*DevicePeer::Look(file_.device()), std::nullopt);
  auto owned = Own(Node("node-a"), 7);
  auto seen = DevicePeer::Look(file_.device());
  ASSERT_TRUE(seen.ok() && *seen) << seen.status();
  EXPECT_EQ((*seen)->Holder(), "node-a@7");
  EXPECT_NE((*seen)->nonce, 0u);
  EXPECT_TRUE(owned->Beat().ok()) << "it has lost nothing";
}

TEST_F(OwnerTest, AnotherNodesDeviceIsRefusedWithItsNameAndIncarnation) {
  Own(Node("node-a"), 7);
  const auto other = OwnedDevice::Open(file_.device(), Node("node-b"));
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(Message(other.status()), HasSubstr("belongs to node \"node-a\", incarnation 7"));
  EXPECT_THAT(Message(other.status()), HasSubstr("--take-over-device node-a@7"));
}

TEST_F(OwnerTest, TakingOverWantsTheOwnerAndTheIncarnationThatAreThere) {
  Own(Node("node-a"), 7);
  for (const char* wrong : {"node-a@6", "node-c@7", "node-a", kUnreadable}) {
    const auto other = OwnedDevice::Open(file_.device(), Node("node-b", wrong));
    EXPECT_TRUE(absl::IsFailedPrecondition(other.status())) << wrong;
    EXPECT_THAT(Message(other.status()), HasSubstr("node-a@7")) << wrong;
  }
  auto taken = OwnedDevice::Open(file_.device(), Node("node-b", "node-a@7"));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)->wait(), kLease + LeaseMargin(kLease));
  ASSERT_TRUE((*taken)->Claim().ok());
  taken->reset();
  // The setting is left in place: the next start is one of the same owner.
  EXPECT_TRUE(OwnedDevice::Open(file_.device(), Node("node-b", "node-a@7")).ok());
  EXPECT_FALSE(OwnedDevice::Open(file_.device(), Node("node-a")).ok());
}

TEST_F(OwnerTest, TheSameNodeComesBackAfterTheLeasesOfItsReaders) {
  const DeviceUuid uuid = Own(Node("node-a"), 7)->uuid();
  auto again = OwnedDevice::Open(file_.device(), Node("node-a"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->uuid(), uuid);
  EXPECT_EQ((*again)->wait(), kLease + LeaseMargin(kLease));
}

TEST_F(OwnerTest, WhoEndsWithoutReadersLeavesNothingToWaitFor) {
  Own(Node("node-a"), 7)->End(/*leases_over=*/true);
  EXPECT_EQ((*OwnedDevice::Open(file_.device(), Node("node-a")))->wait(), Duration::zero());
  Own(Node("node-a"), 8)->End(/*leases_over=*/false);
  EXPECT_GT((*OwnedDevice::Open(file_.device(), Node("node-a")))->wait(), kLease);
}

// flock does not reach other hosts: two views of one file stand for them.
TEST_F(OwnerTest, AnOwnerThatLivesElsewhereIsFoundOutWhileTheNextOneWaits) {
  StandIn cache_a(kDeviceBytes), cache_b(kDeviceBytes);
  HostCache host_a(cache_a, file_), host_b(cache_b, file_);
  auto owner = OwnedDevice::Open(cache_a.device(), Node("node-a"), host_a);
  ASSERT_TRUE(owner.ok() && (*owner)->Claim().ok());
  ASSERT_TRUE((*owner)->SetIncarnation(Incarnation(7)).ok());
  auto next = OwnedDevice::Open(cache_b.device(), Node("node-b", "node-a@7"), host_b);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE((*next)->StillQuiet().ok());
  ASSERT_TRUE((*owner)->Beat().ok());
  EXPECT_TRUE(absl::IsAborted((*next)->StillQuiet()));
  EXPECT_TRUE(absl::IsAborted((*next)->Claim()));
  EXPECT_TRUE((*owner)->Beat().ok());
}

TEST_F(OwnerTest, AnOwnerThatWakesAfterATakeOverWritesNothingAny) {
  StandIn cache_a(kDeviceBytes), cache_b(kDeviceBytes);
  HostCache host_a(cache_a, file_), host_b(cache_b, file_);
  auto owner = OwnedDevice::Open(cache_a.device(), Node("node-a"), host_a);
  ASSERT_TRUE(owner.ok() && (*owner)->Claim().ok());
  ASSERT_TRUE((*owner)->SetIncarnation(Incarnation(7)).ok());
  const auto key = (*owner)->Publish(2 << 20, kReplica, {});
  ASSERT_TRUE(key.ok()) << key.status();
  auto next = OwnedDevice::Open(cache_b.device(), Node("node-b", "node-a@7"), host_b);
  ASSERT_TRUE(next.ok() && (*next)->Claim().ok());
  const auto head = file_.Load(0, std::uint64_t{1} << 20);
  const absl::Status beat = (*owner)->Beat();
  EXPECT_TRUE(absl::IsAborted(beat));
  EXPECT_THAT(Message(beat), HasSubstr("names node-b@0"));
  EXPECT_TRUE(absl::IsAborted((*owner)->SetIncarnation(Incarnation(8))));
  (*owner)->Withdraw(*key);
  (*owner)->End(true);
  EXPECT_EQ(file_.Load(0, std::uint64_t{1} << 20), head);
}

TEST_F(OwnerTest, ADamagedOrForeignDeviceIsTakenOnlyByThatName) {
  Own(Node("node-a"), 7);
  const char junk[] = "junk";
  file_.Store(40, junk, 4);
  file_.Store(kSlotBytes + 40, junk, 4);
  const auto damaged = OwnedDevice::Open(file_.device(), Node("node-a"));
  EXPECT_TRUE(absl::IsDataLoss(damaged.status()));
  EXPECT_THAT(Message(damaged.status()), HasSubstr("--take-over-device unreadable"));
  auto taken = OwnedDevice::Open(file_.device(), Node("node-a", kUnreadable));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT((*taken)->wait(), kLease);
  EXPECT_TRUE((*taken)->Claim().ok());
}

TEST_F(OwnerTest, ADeviceOfAnotherSizeIsRefused) {
  Own(Node("node-a"), 7);
  StandIn larger(2 * kDeviceBytes);
  larger.Store(0, file_.Load(0, 8192).data(), 8192);
  const auto found = OwnedDevice::Open(larger.device(), Node("node-a"));
  EXPECT_TRUE(absl::IsFailedPrecondition(found.status()));
  EXPECT_THAT(Message(found.status()), HasSubstr("device of 4194304 bytes, and it has 8388608"));
}

TEST_F(OwnerTest, ADirectoryThatIsFullSaysSo) {
  auto device = Own(Node("node-a"), 7);
  std::vector<std::uint64_t> keys;
  for (int i = 0; i < 64; ++i) keys.push_back(*device->Publish(2 << 20, 64, {}));
  EXPECT_TRUE(absl::IsResourceExhausted(device->Publish(2 << 20, 64, {}).status()));
  device->Withdraw(keys[17]);
  EXPECT_TRUE(device->Publish(2 << 20, 64, {}).ok());
}

// A node on one host and a client on another one, no caches in common.
class ReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = OwnedDevice::Open(owner_view_.device(), Node("node-a"), owner_cache_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto target = OpenDeviceTarget({device_, nullptr, std::chrono::hours(1)});
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    target_->SetIncarnation(Incarnation(7));
    auto slab = Slab::OnDevice(device_->memory(), kReplica);
    ASSERT_TRUE(slab.ok()) << slab.status();
    slab_ = *std::move(slab);
  }
  // Fills the replica and exposes it.
  RemoteRegion Grant(std::byte value) {
    memset(slab_->data(), static_cast<int>(value), kReplica);
    const auto exposed = target_->Expose({slab_.get(), 0, kReplica, 1, {}});
    EXPECT_TRUE(exposed.ok()) << exposed.status();
    return {PeerId(1), exposed->address, exposed->length, exposed->key};
  }
  PeerAddress Address(std::uint64_t incarnation = 7) const {
    return {target_->address(), {}, NodeId{"node-a"}, Incarnation(incarnation)};
  }
  absl::StatusOr<std::shared_ptr<DevicePeer>> Attach(const PeerAddress& address) {
    return DevicePeer::Attach(
        address, [this] { return std::vector<DaxDescription>{reader_view_.device()}; },
        reader_cache_);
  }
  std::byte First(std::uint64_t address) const { return *reinterpret_cast<std::byte*>(address); }
  std::byte Last(std::uint64_t address) const {
    return *reinterpret_cast<std::byte*>(address + kReplica - 1);
  }

  StandIn memory_{kDeviceBytes}, owner_view_{kDeviceBytes}, reader_view_{kDeviceBytes};
  HostCache owner_cache_{owner_view_, memory_}, reader_cache_{reader_view_, memory_};
  std::shared_ptr<OwnedDevice> device_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<Slab> slab_;
};

TEST_F(ReaderTest, SeesWhatWasWrittenBackBeforeTheGrant) {
  const RemoteRegion granted = Grant(std::byte{42});
  auto peer = Attach(Address());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto address = (*peer)->Import(granted, kNever);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(First(*address), std::byte{42});
  EXPECT_EQ(Last(*address), std::byte{42});
}

// What a place held before is in the reader's caches until it is imported again.
TEST_F(ReaderTest, DropsWhatItHeldWhenAPlaceIsGrantedAnew) {
  const RemoteRegion first = Grant(std::byte{1});
  auto peer = Attach(Address());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto one = (*peer)->Import(first, kNever);
  ASSERT_TRUE(one.ok());
  target_->Hide(first.key);
  const RemoteRegion second = Grant(std::byte{2});
  EXPECT_EQ(First(*one), std::byte{1});  // the caches are what they were
  const auto two = (*peer)->Import(second, kNever);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(First(*two), std::byte{2});
  EXPECT_EQ(Last(*two), std::byte{2});
}

TEST_F(ReaderTest, ImportsWhatTheDirectoryListsAndNothingElse) {
  const RemoteRegion granted = Grant(std::byte{42});
  auto peer = Attach(Address());
  ASSERT_TRUE(peer.ok());
  RemoteRegion wrong = granted;
  wrong.key ^= 1;
  EXPECT_TRUE(absl::IsPermissionDenied((*peer)->Import(wrong, kNever).status()));
  wrong = granted;
  wrong.length += 1;
  EXPECT_TRUE(absl::IsPermissionDenied((*peer)->Import(wrong, kNever).status()));
  wrong = granted;
  wrong.address -= 64;
  EXPECT_TRUE(absl::IsPermissionDenied((*peer)->Import(wrong, kNever).status()));
  target_->Hide(granted.key);
  EXPECT_TRUE(absl::IsPermissionDenied((*peer)->Import(granted, kNever).status()));
}

TEST_F(ReaderTest, RefusesAnotherIncarnationAndAClaimThatIsNotTheSessions) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Attach(Address(6)).status()));
  PeerAddress copied = Address();
  copied.path.nonce ^= 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Attach(copied).status()));
  PeerAddress elsewhere = Address();
  elsewhere.path.address = FormatDeviceAddress(DeviceUuid());
  const auto none = Attach(elsewhere);
  EXPECT_THAT(Message(none.status()), HasSubstr("is not attached to this host"));
}

TEST_F(ReaderTest, ATakenOverDeviceGivesNothingToReadersOfTheOldOwner) {
  const RemoteRegion granted = Grant(std::byte{42});
  auto peer = Attach(Address());
  ASSERT_TRUE(peer.ok());
  StandIn other_view(kDeviceBytes);
  HostCache other_cache(other_view, memory_);
  auto next = OwnedDevice::Open(other_view.device(), Node("node-b", "node-a@7"), other_cache);
  ASSERT_TRUE(next.ok() && (*next)->Claim().ok());
  const auto import = (*peer)->Import(granted, kNever);
  EXPECT_TRUE(absl::IsFailedPrecondition(import.status()));
  EXPECT_THAT(Message(import.status()), HasSubstr("names node-b@0"));
}

TEST_F(ReaderTest, AnEndedOwnerIsUnavailable) {
  const PeerAddress address = Address();
  target_->Stop();
  EXPECT_TRUE(absl::IsUnavailable(Attach(address).status()));
}

TEST_F(ReaderTest, TheOwnerHearsThatItsDeviceIsGone) {
  StandIn other_view(kDeviceBytes);
  HostCache other_cache(other_view, memory_);
  auto next = OwnedDevice::Open(other_view.device(), Node("node-b", "node-a@7"), other_cache);
  ASSERT_TRUE(next.ok() && (*next)->Claim().ok());
  EXPECT_TRUE(absl::IsAborted(target_->Expose({slab_.get(), 0, kReplica, 1, {}}).status()));
}

TEST(CacheLinesTest, OfThisProcessorLeaveTheBytesAlone) {
  const CacheLines& lines = CacheLines::OfThisProcessor();
  std::vector<std::byte> bytes(1000, std::byte{5});
  lines.WriteBack(bytes.data() + 3, 900);
  lines.Invalidate(bytes.data() + 3, 900);
  EXPECT_EQ(bytes, std::vector<std::byte>(1000, std::byte{5}));
  EXPECT_FALSE(lines.instructions().empty());
}

}  // namespace
}  // namespace engram::fabric::dax
