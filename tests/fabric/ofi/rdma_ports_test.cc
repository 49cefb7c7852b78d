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

// What is to be bound on a machine with such ports; `lo` stands for an interface with an address.
class ResolvePortTest : public RdmaPortsTest {
 protected:
  void AddPort(const std::string& device, int port, const std::string& state,
               const std::string& interface, int numa_node) {
    const std::string folder = device + "/ports/" + std::to_string(port);
    Write(folder + "/state", state + "\n");
    if (!interface.empty()) Write(folder + "/gid_attrs/ndevs/0", interface + "\n");
    Write(device + "/device/numa_node", std::to_string(numa_node) + "\n");
  }
  absl::StatusOr<Binding> Resolve(const std::string& bind, int near = -1) {
    return ResolveBinding("verbs;ofi_rxm", bind, near, root_);
  }
  std::string Refusal(const std::string& bind) {
    const auto refused = Resolve(bind);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
    return std::string(refused.status().message());
  }
};

TEST_F(ResolvePortTest, APortIsNamedByItsDeviceAndNumber) {
  AddPort("mlx5_0", 1, "4: ACTIVE", "nothing0", 0);
  AddPort("mlx5_0", 2, "4: ACTIVE", "lo", 0);
  const auto named = Resolve("mlx5_0:2");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->node, "127.0.0.1");
  EXPECT_EQ(named->numa_node, 0);
  EXPECT_EQ(Resolve("mlx5_0")->node, "127.0.0.1") << "the port that can be bound";
  EXPECT_NE(Refusal("mlx5_0:1").find("mlx5_0:1 has no IP address on nothing0"), std::string::npos);
  EXPECT_NE(Refusal("mlx5_1").find("mlx5_0:2 is not asked for"), std::string::npos);
}

TEST_F(ResolvePortTest, APortThatIsDownOrWithoutAnInterfaceIsRefusedWithTheReason) {
  AddPort("mlx5_0", 1, "1: DOWN", "lo", 0);
  AddPort("mlx5_1", 1, "4: ACTIVE", "", 0);
  const std::string why = Refusal("auto");
  EXPECT_NE(why.find("mlx5_0:1 is DOWN"), std::string::npos) << why;
  EXPECT_NE(why.find("mlx5_1:1 has no IP address: give it one"), std::string::npos) << why;
}

TEST_F(ResolvePortTest, AutoTakesTheFirstPortOrOneThatIsNear) {
  AddPort("mlx5_0", 1, "1: DOWN", "lo", 1);
  AddPort("mlx5_1", 1, "4: ACTIVE", "lo", 0);
  AddPort("mlx5_2", 1, "4: ACTIVE", "nothing0", 1);
  AddPort("mlx5_3", 1, "4: ACTIVE", "lo", 1);
  EXPECT_EQ(Resolve("auto")->numa_node, 0);
  EXPECT_EQ(Resolve("auto", 1)->numa_node, 1);
  EXPECT_EQ(Resolve("auto", 7)->numa_node, 0) << "none is near: the first";
  EXPECT_EQ(Resolve("mlx5_1", 1)->numa_node, 0) << "a name stands";
}

TEST_F(ResolvePortTest, AnAddressIsOfTheDeviceThatHasIt) {
  AddPort("mlx5_1", 1, "4: ACTIVE", "lo", 1);
  EXPECT_EQ(Resolve("127.0.0.1")->numa_node, 1);
  EXPECT_EQ(Resolve("127.0.0.1")->device, "mlx5_1");
  EXPECT_EQ(Resolve("10.1.2.3")->numa_node, -1);
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
