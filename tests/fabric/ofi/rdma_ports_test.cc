#include "fabric/ofi/rdma_ports.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace engram::fabric::ofi {
namespace {

namespace fs = std::filesystem;

class RdmaPortsTest : public testing::Test {
 protected:
  RdmaPortsTest() {
    std::string pattern = testing::TempDir() + "rdma_ports_test.XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~RdmaPortsTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(root_) / "sys/class/infiniband" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(RdmaPortsTest, ListsNothingWithoutADevice) { EXPECT_TRUE(ListRdmaPorts(root_).empty()); }

TEST_F(RdmaPortsTest, ReadsWhatTheKernelSaysOfAPort) {
  Write("mlx5_0/ports/2/state", "4: ACTIVE\n");
  Write("mlx5_0/ports/2/link_layer", "Ethernet\n");
  Write("mlx5_0/ports/2/gid_attrs/ndevs/1", "eth3\n");
  Write("mlx5_0/ports/2/gid_attrs/types/1", "RoCE v2\n");
  Write("mlx5_0/ports/2/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  Write("mlx5_0/ports/2/gids/1", "0000:0000:0000:0000:0000:ffff:0a08:0001\n");
  Write("mlx5_0/ports/1/state", "1: DOWN\n");
  const auto ports = ListRdmaPorts(root_);
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].name(), "mlx5_0:1");
  EXPECT_FALSE(ports[0].active());
  EXPECT_TRUE(ports[1].active());
  EXPECT_EQ(ports[1].interface, "eth3");
  EXPECT_EQ(ports[1].gids,
            std::vector<std::string>{"RoCE v2 0000:0000:0000:0000:0000:ffff:0a08:0001"});
}

// An InfiniBand port has no interface beside its GIDs.
TEST_F(RdmaPortsTest, TakesTheInterfaceOfTheDeviceWhereThePortNamesNone) {
  Write("mlx5_1/ports/1/state", "4: ACTIVE\n");
  Write("mlx5_1/device/net/ib0/address", "x\n");
  const auto ports = ListRdmaPorts(root_);
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].interface, "ib0");
}

TEST(AddressesOf, KnowsTheLoopback) {
  const auto addresses = AddressesOf("lo");
  ASSERT_FALSE(addresses.empty());
  EXPECT_EQ(addresses.front(), "127.0.0.1");
  EXPECT_TRUE(AddressesOf("no such interface").empty());
}

TEST(ResolveBinding, AutoIsTheLoopbackWithoutRdma) {
  const auto tcp = ResolveBinding("tcp;ofi_rxm", "auto");
  ASSERT_TRUE(tcp.ok());
  EXPECT_EQ(tcp->node, "127.0.0.1");
  EXPECT_EQ(ResolveBinding("tcp;ofi_rxm", "10.1.2.3")->node, "10.1.2.3");
  EXPECT_EQ(ResolveBinding("shm", "auto")->node, "");
}

TEST(ResolveBinding, AnAddressStandsAndEfaTakesADeviceName) {
  EXPECT_EQ(ResolveBinding("verbs;ofi_rxm", "10.1.2.3")->node, "10.1.2.3");
  EXPECT_EQ(ResolveBinding("efa", "rdmap0s6")->domain, "rdmap0s6");
  EXPECT_EQ(ResolveBinding("efa", "auto")->domain, "");
}

TEST(ResolveBinding, AnUnknownDeviceIsRefusedWithItsName) {
  const auto none = ResolveBinding("verbs;ofi_rxm", "no_such_device");
  ASSERT_TRUE(absl::IsFailedPrecondition(none.status())) << none.status();
  EXPECT_NE(none.status().message().find("no_such_device"), absl::string_view::npos);
}

}  // namespace
}  // namespace engram::fabric::ofi
