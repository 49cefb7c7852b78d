#include "client/ctl/doctor_checks.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

// A machine made of files and answers; the constructor makes a healthy one.
class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    std::string pattern = testing::TempDir() + "doctor_test.XXXXXX";
    host_.root = mkdtemp(pattern.data());
    Limits("unlimited", "65536");
    Write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
    Write("/proc/meminfo", "MemTotal:       24689000 kB\nMemAvailable:   20000000 kB\n");
    HugePages("2048kB", 512, 400);
    HugePages("1048576kB", 0, 0);
    Write("/sys/devices/system/node/node0/cpulist", "0-1\n");
    Write("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  24689000 kB\n");
    Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    host_.space = [](const std::string&) {
      return Space{std::uint64_t{8} << 30, std::uint64_t{8} << 30};
    };
    host_.loopback = [](int) { return absl::OkStatus(); };
    host_.bind = [](std::uint16_t) { return absl::OkStatus(); };
    host_.io_uring = [] { return 0; };
    host_.unix_seconds = [] { return std::int64_t{1'800'000'000}; };
    host_.fabric_providers = [] { return std::vector<std::string>{"tcp;ofi_rxm", "shm"}; };
    host_.ucx_version = [] { return std::string("1.13.1"); };
  }
  ~DoctorTest() override { fs::remove_all(host_.root); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(host_.root + path).parent_path());
    std::ofstream(host_.root + path) << text;
  }
  void Limits(const std::string& memlock, const std::string& files) {
    Write("/proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max locked memory         " +
              memlock + "              " + memlock +
              "   bytes\n"
              "Max open files            " +
              files + "                65536    files\n");
  }
  void HugePages(const std::string& size, int total, int free) {
    const std::string base = "/sys/kernel/mm/hugepages/hugepages-" + size;
    Write(base + "/nr_hugepages", std::to_string(total) + "\n");
    Write(base + "/free_hugepages", std::to_string(free) + "\n");
  }

  Host host_;
};

TEST_F(DoctorTest, AHealthyMachineHasNothingButOk) {
  for (const Check& check : RunChecks(host_)) {
    EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ": " << check.value;
    EXPECT_EQ(check.advice, "") << check.name;
    EXPECT_NE(check.value, "") << check.name;
  }
}

TEST_F(DoctorTest, EightMebibytesOfMemlockWarnUnlessTheCapabilityIsThere) {
  Limits("8388608", "65536");
  Check check = CheckMemlock(host_);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.value, "8.0MiB");
  EXPECT_NE(check.advice.find("ulimit -l"), std::string::npos);
  Write("/proc/self/status", "CapEff:\t0000000000004000\n");  // bit 14, CAP_IPC_LOCK
  EXPECT_EQ(CheckMemlock(host_).verdict, Verdict::kOk);
}

TEST_F(DoctorTest, NoFreeHugePagesWarnForTwoMebibytesOnly) {
  HugePages("2048kB", 0, 0);
  std::vector<Check> checks = CheckHugePages(host_);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].verdict, Verdict::kWarn);
  EXPECT_NE(checks[0].advice.find("vm.nr_hugepages"), std::string::npos);
  EXPECT_EQ(checks[1].verdict, Verdict::kOk);
  HugePages("2048kB", 512, 0);
  EXPECT_NE(CheckHugePages(host_)[0].advice.find("in use"), std::string::npos);
}

TEST_F(DoctorTest, NodesWithoutCpusAreNamedAsMemoryOnly) {
  Write("/sys/devices/system/node/node1/cpulist", "\n");
  Write("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  131072 kB\n");
  const Check check = CheckNuma(host_);
  EXPECT_NE(check.value.find("node0"), std::string::npos);
  EXPECT_NE(check.value.find("node1 128.0MiB, no cpus"), std::string::npos) << check.value;
}

TEST_F(DoctorTest, ADaxDeviceWithoutItsFileWarns) {
  Write("/sys/bus/cxl/devices/mem0/serial", "0x1\n");
  Write("/sys/bus/dax/devices/dax0.0/size", "262144000\n");
  EXPECT_EQ(CheckCxl(host_).verdict, Verdict::kWarn);
  Write("/dev/dax0.0", "");
  const Check check = CheckCxl(host_);
  EXPECT_EQ(check.verdict, Verdict::kOk);
  EXPECT_NE(check.value.find("mem0"), std::string::npos);
  EXPECT_NE(check.value.find("/dev/dax0.0 250.0MiB"), std::string::npos) << check.value;
}

TEST_F(DoctorTest, ADaxDeviceIsNamedWithItsOwner) {
  Write("/sys/bus/dax/devices/dax0.0/size", "262144000\n");
  Write("/sys/bus/dax/devices/dax1.0/size", "262144000\n");
  Write("/dev/dax0.0", "");
  Write("/dev/dax1.0", "");
  host_.device_owner = [](const std::string& path) -> absl::StatusOr<std::string> {
    if (path == "/dev/dax1.0") return absl::PermissionDeniedError("not for you");
    return "owned by node-a@7";
  };
  const std::string value = CheckCxl(host_).value;
  EXPECT_NE(value.find("/dev/dax0.0 250.0MiB, owned by node-a@7"), std::string::npos) << value;
  EXPECT_NE(value.find("/dev/dax1.0 250.0MiB, owner unknown: not for you"), std::string::npos)
      << value;
}

TEST_F(DoctorTest, RdmaPortsAreNamedWithWhatAConnectionNeeds) {
  EXPECT_TRUE(CheckRdma(host_).empty());
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  Write(port + "state", "4: ACTIVE\n");
  Write(port + "link_layer", "Ethernet\n");
  Write(port + "rate", "100 Gb/sec (4X EDR)\n");
  Write(port + "gids/0", "fe80:0000:0000:0000:5054:00ff:fe00:0001\n");
  Write(port + "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  Write(port + "gid_attrs/ndevs/0", "eth1\n");
  Write(port + "gid_attrs/types/0", "RoCE v2\n");
  Write("/sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
  host_.addresses = [](const std::string& interface) {
    return std::vector<std::string>{interface == "eth1" ? "10.0.0.7" : "wrong"};
  };
  std::vector<Check> checks = CheckRdma(host_);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].name, "rdma mlx5_0:1");
  EXPECT_EQ(checks[0].verdict, Verdict::kOk) << checks[0].advice;
  EXPECT_EQ(checks[0].value,
            "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), eth1 10.0.0.7, 1 GIDs, NUMA node 1");
  host_.addresses = [](const std::string&) { return std::vector<std::string>{}; };
  EXPECT_EQ(CheckRdma(host_)[0].verdict, Verdict::kWarn);
  Write(port + "state", "1: DOWN\n");
  EXPECT_NE(CheckRdma(host_)[0].advice.find("not active"), std::string::npos);
}

TEST_F(DoctorTest, RegistrationIsMeasuredOnPortsThatCanBeUsedAndOnBothPages) {
  std::vector<std::string> asked;
  host_.registration = [&asked](const std::string& provider, const std::string& bind,
                                std::uint64_t page,
                                std::uint64_t bytes) -> absl::StatusOr<Duration> {
    asked.push_back(provider + " " + bind);
    EXPECT_EQ(bytes, std::uint64_t{256} << 20);
    if (page == 4096) return Duration(std::chrono::milliseconds(50));
    return absl::ResourceExhaustedError("no huge pages are free");
  };
  std::vector<Check> checks = CheckRegistration(host_);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].name, "register tcp;ofi_rxm");
  EXPECT_EQ(checks[0].value, "4KiB pages: 200.0 ms a GiB; 2MiB pages: not tried");
  EXPECT_EQ(checks[0].verdict, Verdict::kWarn);
  EXPECT_EQ(checks[0].advice, "no huge pages are free");

  Write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  Write("/sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
  host_.addresses = [](const std::string&) { return std::vector<std::string>{"10.0.0.7"}; };
  asked.clear();
  checks = CheckRegistration(host_);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].name, "register mlx5_1:1");
  EXPECT_EQ(asked, std::vector<std::string>(2, "verbs;ofi_rxm mlx5_1:1"));
}

TEST_F(DoctorTest, FabricsListProvidersAndRdmaDevices) {
  Write("/sys/class/infiniband/mlx5_0/node_guid", "0\n");
  const Check check = CheckFabrics(host_);
  EXPECT_NE(check.value.find("tcp;ofi_rxm, shm"), std::string::npos);
  EXPECT_NE(check.value.find("ucx (1.13.1)"), std::string::npos);
  EXPECT_NE(check.value.find("RDMA: mlx5_0"), std::string::npos);
  host_.ucx_version = []() -> absl::StatusOr<std::string> {
    return absl::UnavailableError("no libucp.so.0");
  };
  EXPECT_EQ(CheckFabrics(host_).value.find("ucx"), std::string::npos);
  host_.fabric_providers = []() -> absl::StatusOr<std::vector<std::string>> {
    return absl::UnavailableError("fi_getinfo: No data available");
  };
  EXPECT_EQ(CheckFabrics(host_).verdict, Verdict::kWarn);
}

TEST_F(DoctorTest, ASmallTmpfsWarns) {
  host_.space = [](const std::string& path) {
    EXPECT_EQ(path, "/dev/shm");
    return Space{64u << 20, 60u << 20};
  };
  EXPECT_EQ(CheckTmpfs(host_).verdict, Verdict::kWarn);
}

TEST_F(DoctorTest, LittleMemoryAndFewDescriptorsWarn) {
  Write("/proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 500000 kB\n");
  EXPECT_EQ(CheckMemory(host_).verdict, Verdict::kWarn);
  Limits("unlimited", "256");
  EXPECT_EQ(CheckOpenFiles(host_).verdict, Verdict::kWarn);
}

TEST_F(DoctorTest, ATakenPortWarns) {
  host_.bind = [](std::uint16_t port) {
    EXPECT_EQ(port, 7700);
    return absl::UnavailableError("bind: Address already in use");
  };
  const Check check = CheckPort(host_, 7700);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_NE(check.value.find("Address already in use"), std::string::npos);
}

TEST_F(DoctorTest, NoIpv4LoopbackFailsAndNoIpv6Warns) {
  host_.loopback = [](int family) {
    return family == AF_INET6 ? absl::UnavailableError("no route") : absl::OkStatus();
  };
  EXPECT_EQ(CheckLoopback(host_)[1].verdict, Verdict::kWarn);
  host_.loopback = [](int) { return absl::UnavailableError("no route"); };
  EXPECT_EQ(CheckLoopback(host_)[0].verdict, Verdict::kFail);
}

TEST_F(DoctorTest, SlowClockSourceWarnsAndAnImpossibleDateFails) {
  Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  EXPECT_EQ(CheckClockSource(host_).verdict, Verdict::kWarn);
  host_.unix_seconds = [] { return std::int64_t{86'400}; };
  EXPECT_EQ(CheckWallClock(host_).verdict, Verdict::kFail);
}

TEST_F(DoctorTest, AForbiddenIoUringWarns) {
  host_.io_uring = [] { return EPERM; };
  const Check check = CheckIoUring(host_);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_NE(check.advice.find("io_uring_disabled"), std::string::npos);
}

TEST(RealHost, AnswersEveryCheckOfThisMachine) {
  for (const Check& check : RunChecks(Host::Real())) EXPECT_NE(check.value, "") << check.name;
}

}  // namespace
}  // namespace engram::ctl
