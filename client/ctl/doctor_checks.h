// What a machine must offer to a pool, checked one thing at a time: memory that may be locked, huge
// pages, NUMA and CXL devices, fabrics, tmpfs, ports, loopback, clocks, io_uring. The same checks
// are `engramctl doctor`, the chart's test and a node's readiness reason.
//
// Everything a check looks at comes through `Host`, so tests hand in trees of files and fake
// answers. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"

namespace engram::ctl {

// kWarn: the pool works, but slower or without something. kFail: something cannot work.
enum class Verdict { kOk, kWarn, kFail };
std::string_view Name(Verdict verdict);

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string value;   // what was found
  std::string advice;  // what to do about it; empty when all is well
};

struct Space {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// The machine as the checks see it.
struct Host {
  std::string root;  // prefix of /proc, /sys and /dev; empty on a real machine
  std::function<absl::StatusOr<Space>(const std::string& path)> space;
  // Connects to itself over 127.0.0.1 (AF_INET) or ::1 (AF_INET6).
  std::function<absl::Status(int family)> loopback;
  // OK when 127.0.0.1:port can be bound.
  std::function<absl::Status(std::uint16_t port)> bind;
  // io_uring_setup: 0 or an errno.
  std::function<int()> io_uring;
  std::function<std::int64_t()> unix_seconds;
  // libfabric providers that can be opened for remote reads, by name.
  std::function<absl::StatusOr<std::vector<std::string>>()> fabric_providers;
  // IP addresses of a network interface.
  std::function<std::vector<std::string>(const std::string& interface)> addresses;
  // How long it takes to register `bytes` of memory on pages of `page_bytes` with a libfabric
  // provider that is bound to `bind`.
  std::function<absl::StatusOr<Duration>(const std::string& provider, const std::string& bind,
                                         std::uint64_t page_bytes, std::uint64_t bytes)>
      registration;
  // Whose a DAX device is: "owned by node-a@7". Null: nobody asks.
  std::function<absl::StatusOr<std::string>(const std::string& path)> device_owner;
  // The version of UCX, where it is installed.
  std::function<absl::StatusOr<std::string>()> ucx_version;

  static Host Real();
};

Check CheckMemlock(const Host& host);
std::vector<Check> CheckHugePages(const Host& host);
Check CheckNuma(const Host& host);
Check CheckCxl(const Host& host);
Check CheckFabrics(const Host& host);
// One a port: state, link, interface and addresses, GIDs, NUMA node. None without an RDMA device.
std::vector<Check> CheckRdma(const Host& host);
// What registering costs, on small and on huge pages: one a port that can be used, or one of
// tcp;ofi_rxm where there is none. Takes 256 MiB of memory for a moment.
std::vector<Check> CheckRegistration(const Host& host);
Check CheckTmpfs(const Host& host);
Check CheckMemory(const Host& host);
Check CheckOpenFiles(const Host& host);
Check CheckPort(const Host& host, std::uint16_t port);
std::vector<Check> CheckLoopback(const Host& host);
Check CheckClockSource(const Host& host);
Check CheckWallClock(const Host& host);
Check CheckIoUring(const Host& host);

// All but what is only asked for (CheckRegistration), in the order in which a person would look.
std::vector<Check> RunChecks(const Host& host);

}  // namespace engram::ctl
