// An address that goes away under a provider, and the one that its device has instead.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>

#include <memory>
#include <string>

#include "fabric/ofi/ofi_target.h"
#include "fabric/ofi/provider.h"

namespace engram::fabric::ofi {
namespace {

// 127.0.0.N that an endpoint made now is bound to: N; 0 where there is none.
int LastByteOf(const Provider& provider) {
  auto endpoint = provider.OpenEndpoint(64, false);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  if (!endpoint.ok()) return 0;
  sockaddr_in address{};
  std::size_t bytes = sizeof address;
  EXPECT_EQ(fi_getname(&endpoint->ep->fid, &address, &bytes), 0);
  return static_cast<int>(ntohl(address.sin_addr.s_addr) & 255);
}

TEST(ProviderAddressTest, EndpointsAreMadeOnTheAddressThatTheDeviceHasNow) {
  auto address = std::make_shared<absl::StatusOr<Binding>>(Binding{"127.0.0.1", "", "nic0", 0});
  ProviderOptions options;
  options.resolve = [address](const ProviderOptions&) { return *address; };
  const auto provider = Provider::Open(options);
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_EQ(LastByteOf(**provider), 1);
  *address = Binding{"127.0.0.2", "", "nic0", 0};
  EXPECT_EQ(LastByteOf(**provider), 2);
  *address = absl::FailedPreconditionError("no port is active");
  EXPECT_EQ(LastByteOf(**provider), 2) << "the last one that was there";
  *address = Binding{"127.0.0.3", "", "nic1", 0};
  EXPECT_EQ(LastByteOf(**provider), 2) << "the domain is that of nic0";
}

TEST(ProviderAddressTest, ATargetWhoseAddressIsGoneHasMovedAndOneOpenedThenIsThere) {
  auto address = std::make_shared<absl::StatusOr<Binding>>(Binding{"127.0.0.1", "", "nic0", 0});
  OfiTargetOptions options;
  options.provider.resolve = [address](const ProviderOptions&) { return *address; };
  const auto target = OfiTarget::Open(options);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_FALSE((*target)->Moved());
  *address = absl::FailedPreconditionError("no port is active");
  EXPECT_FALSE((*target)->Moved()) << "there is nothing to move to yet";
  *address = Binding{"127.0.0.2", "", "nic0", 0};
  EXPECT_TRUE((*target)->Moved());
  const auto follower = (*target)->OpenDomain();
  ASSERT_TRUE(follower.ok()) << follower.status();
  EXPECT_FALSE((*follower)->Moved());
  EXPECT_NE((*follower)->address().address, (*target)->address().address);
  *address = Binding{"127.0.0.3", "", "nic1", 0};
  EXPECT_FALSE((*target)->Moved()) << "another device";
}

}  // namespace
}  // namespace engram::fabric::ofi
