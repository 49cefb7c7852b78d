// A node whose device gets another address: what was registered is registered anew on a path that
// can be reached, and read by the old one meanwhile.
#include <gtest/gtest.h>

#include <set>

#include "poolserver/exposure.h"
#include "tests/poolserver/small_node.h"

namespace engram::poolserver {
namespace {

using std::chrono::seconds;

// What all targets of a test know: the address that the device has, and who is there.
struct FakeDevice {
  std::string address = "a1";
  std::set<std::string> open;  // targets, by address
  std::uint64_t last_key = 0;
  bool opens = true;
};

class FakeTarget final : public fabric::Target {
 public:
  FakeTarget(FakeDevice* device, bool bearer_keys) : device_(device), address_(device->address) {
    info_.kind = bearer_keys ? FabricKind::kOfi : FabricKind::kStream;
    info_.bearer_keys = bearer_keys;
    device_->open.insert(address_);
  }
  ~FakeTarget() override { Stop(); }
  const fabric::FabricInfo& info() const override { return info_; }
  PathAddress address() const override { return {info_.kind, address_, true, true, 0}; }
  absl::StatusOr<fabric::ExposedRegion> Expose(const fabric::ExposedMemory& memory) override {
    return fabric::ExposedRegion{0, memory.length, ++device_->last_key};
  }
  void Hide(std::uint64_t) override {}
  absl::StatusOr<std::unique_ptr<Target>> OpenDomain() const override {
    if (!device_->opens) return absl::UnavailableError("no address yet");
    return std::make_unique<FakeTarget>(device_, true);
  }
  bool Moved() const override { return address_ != device_->address; }
  void Admit(const SessionToken&) override {}
  void Dismiss(const SessionToken&) override {}
  void Allow(const SessionToken&, std::uint64_t) override {}
  void Disallow(const SessionToken&, std::uint64_t) override {}
  void Stop() override { device_->open.erase(address_); }

 private:
  FakeDevice* const device_;
  const std::string address_;
  fabric::FabricInfo info_;
};

class MovedExposureTest : public testing::Test {
 protected:
  MovedExposureTest() : exposure_(Targets()) {
    fabric::SlabOptions options;
    options.bytes = 1 << 20;
    slab_ = *fabric::Slab::Create(options);
  }
  std::vector<std::unique_ptr<fabric::Target>> Targets() {
    std::vector<std::unique_ptr<fabric::Target>> out;
    out.push_back(std::make_unique<FakeTarget>(&wire_, false));
    out.push_back(std::make_unique<FakeTarget>(&device_, true));
    return out;
  }
  // The paths of a new registration.
  std::vector<std::uint32_t> Expose(std::uint32_t registration, const std::string& tenant = "") {
    const ExposeReplica replica{{Shard(0), RegistrationId(registration)}, Tier::kDram, tenant};
    Place place;
    place.slab = slab_.get();
    place.length = 4096;
    const auto exposed = exposure_.Expose(replica, place, 64);
    EXPECT_TRUE(exposed.ok()) << exposed.status();
    std::vector<std::uint32_t> out;
    for (const GrantPath& path : exposed->paths) out.push_back(path.path);
    std::sort(out.begin(), out.end());
    return out;
  }

  FakeDevice wire_{"w", {}, 0, true}, device_;
  std::unique_ptr<fabric::Slab> slab_;
  Exposure exposure_;
};

TEST_F(MovedExposureTest, WhatIsExposedAfterAnAddressChangedIsOnThePathThatFollowed) {
  EXPECT_EQ(Expose(1), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_TRUE(exposure_.FollowAddresses().left.empty());
  device_.address = "a2";
  const Exposure::Followed followed = exposure_.FollowAddresses();
  EXPECT_EQ(followed.left, std::set<std::uint32_t>{1});
  ASSERT_EQ(followed.now.size(), 1u);
  EXPECT_EQ(followed.now[0].address, "a2");
  EXPECT_EQ(exposure_.paths()[0].address, "w");
  EXPECT_EQ(exposure_.paths()[1].address, "a2") << "who comes now is told where it is";
  EXPECT_EQ(Expose(2), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_TRUE(exposure_.FollowAddresses().left.empty()) << "it has been followed";
  EXPECT_TRUE(device_.open.contains("a1")) << "readers that are connected read on";
}

TEST_F(MovedExposureTest, APathThatWasLeftTwiceIsClosedWhenNothingIsExposedThere) {
  device_.address = "a2";
  exposure_.FollowAddresses();
  EXPECT_EQ(Expose(1), (std::vector<std::uint32_t>{0, 2}));
  device_.address = "a3";
  EXPECT_EQ(exposure_.FollowAddresses().left, std::set<std::uint32_t>{2});
  EXPECT_EQ(Expose(2), (std::vector<std::uint32_t>{0, 3}));
  exposure_.FollowAddresses();
  EXPECT_TRUE(device_.open.contains("a2"));
  exposure_.Hide({Shard(0), RegistrationId(1)});
  exposure_.FollowAddresses();
  EXPECT_FALSE(device_.open.contains("a2"));
  EXPECT_TRUE(device_.open.contains("a3"));
}

TEST_F(MovedExposureTest, DomainsOfTenantsFollowToo) {
  EXPECT_EQ(Expose(1, "team-a"), (std::vector<std::uint32_t>{0, 2}));
  device_.address = "a2";
  EXPECT_EQ(exposure_.FollowAddresses().left, (std::set<std::uint32_t>{1, 2}));
  const std::vector<std::uint32_t> own = Expose(2, "team-a"), whole = Expose(3);
  EXPECT_GT(own.at(1), 2u);
  EXPECT_GT(whole.at(1), 2u);
  EXPECT_NE(own.at(1), whole.at(1));
}

TEST_F(MovedExposureTest, WhatCannotBeFollowedIsTriedAgain) {
  device_.address = "a2";
  device_.opens = false;
  EXPECT_TRUE(exposure_.FollowAddresses().left.empty());
  device_.opens = true;
  EXPECT_EQ(exposure_.FollowAddresses().left, std::set<std::uint32_t>{1});
}

class MovedPathsTest : public testing::Test {
 protected:
  MovedPathsTest() : random_(1), state_(SmallNode(), &random_) {
    Feed(ControllerConnected{});
    Feed(ControllerSaid{
        NodeWelcome{Incarnation(7), FencingToken(3), seconds(1'000'000), seconds(5)}});
    Feed(ControllerSaid{Command{1, Incarnation(7), FencingToken(3),
                                LoadReplicas{TableOf(1), {ShardIndex(0)}, Tier::kDram}}});
    Feed(ReplicaLoaded{Shard(0), {}});
  }
  std::vector<Action> Feed(Event event) { return state_.OnEvent(now_, std::move(event)); }
  std::vector<Action> Expose(std::uint32_t registration, std::uint32_t path) {
    ReplicaExposed exposed{Key(registration), {{path, 4096, 64, 100 + registration}}, true, {}};
    if (path > 0) exposed.opened = {{path, PathAddress{FabricKind::kOfi, "a2", true, true, 0}}};
    return Feed(std::move(exposed));
  }
  static RegistrationKey Key(std::uint32_t registration) {
    return {Shard(0), RegistrationId(registration)};
  }
  std::vector<Action> Open(std::uint64_t stream) {
    OpenSession open;
    open.client = "replica";
    open.request_id = "request-" + std::to_string(stream);
    open.node = {"node-0"};
    open.incarnation = Incarnation(7);
    open.tables = {TableOf(1).uid};
    return Feed(ClientSaid{StreamId(stream), open});
  }
  static std::vector<GrantUpdate> Updates(const std::vector<Action>& actions) {
    std::vector<GrantUpdate> out;
    for (const SendToClient& send : All<SendToClient>(actions)) {
      if (const auto* update = std::get_if<GrantUpdate>(&send.message)) out.push_back(*update);
    }
    return out;
  }

  SeededRandom random_;
  NodeState state_;
  Instant now_{seconds(100)};
};

TEST_F(MovedPathsTest, AReplicaIsRegisteredAnewAndTheOldPathReadUntilItsReadersHaveLetGo) {
  Expose(1, 0);
  Open(1);
  auto actions = Feed(PathsMoved{{PathAddress{FabricKind::kOfi, "a2", true, true, 0}}, {0}});
  ASSERT_EQ(All<ExposeReplica>(actions).size(), 1u);
  EXPECT_EQ(All<ExposeReplica>(actions)[0].registration, Key(2));
  actions = Expose(2, 1);
  ASSERT_EQ(Updates(actions).size(), 1u);
  EXPECT_EQ(Updates(actions)[0].granted.at(0).paths.at(0).path, 1u);
  EXPECT_EQ(Updates(actions)[0].paths.at(0).address.address, "a2");
  EXPECT_TRUE(All<HideReplica>(actions).empty());
  actions = Feed(ClientSaid{StreamId(1), RenewLease{1, GrantRevision(2)}});
  ASSERT_EQ(All<HideReplica>(actions).size(), 1u);
  EXPECT_EQ(All<HideReplica>(actions)[0].registration, Key(1));
  for (const SendToClient& send : All<SendToClient>(Open(2))) {
    if (const auto* opened = std::get_if<SessionOpened>(&send.message)) {
      EXPECT_EQ(opened->paths.at(0).address, "a2");
    }
  }
  EXPECT_TRUE(All<ExposeReplica>(Feed(PathsMoved{{PathAddress{}}, {0}})).empty()) << "it has left";
}

TEST_F(MovedPathsTest, WhatWasBeingRegisteredWhenItsAddressWentIsRegisteredOnceMore) {
  EXPECT_TRUE(All<ExposeReplica>(Feed(PathsMoved{{PathAddress{}}, {0}})).empty());
  const auto actions = Expose(1, 0);
  ASSERT_EQ(All<ExposeReplica>(actions).size(), 1u);
  EXPECT_EQ(All<ExposeReplica>(actions)[0].registration, Key(2));
  EXPECT_TRUE(All<ExposeReplica>(Expose(2, 1)).empty());
}

}  // namespace
}  // namespace engram::poolserver
