#include "client/ctl/doctor_checks.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/ctl/units.h"
#include "engram/settings/units.h"
#include "fabric/ofi/rdma_ports.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr int kCapIpcLock = 14;

// The file's text without its last newline; empty when it cannot be read.
std::string ReadText(const Host& host, const std::string& path) {
  std::ifstream file(host.root + path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::string(absl::StripTrailingAsciiWhitespace(text.str()));
}

std::uint64_t ReadNumber(const Host& host, const std::string& path) {
  std::uint64_t number = 0;
  return absl::SimpleAtoi(ReadText(host, path), &number) ? number : 0;
}

// The rest of the first line that starts with `key`, trimmed.
std::string LineAfter(const std::string& text, std::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, absl::string_view(key.data(), key.size()))) {
      return std::string(absl::StripAsciiWhitespace(line));
    }
  }
  return "";
}

// The first of the two limits (soft, hard) of /proc/self/limits.
std::uint64_t SoftLimit(const Host& host, std::string_view name) {
  const std::string line = LineAfter(ReadText(host, "/proc/self/limits"), name);
  const std::string soft = line.substr(0, line.find(' '));
  std::uint64_t limit = 0;
  if (soft == "unlimited") return kUnlimited;
  return absl::SimpleAtoi(soft, &limit) ? limit : 0;
}

bool HasCapability(const Host& host, int bit) {
  const std::string hex = LineAfter(ReadText(host, "/proc/self/status"), "CapEff:");
  std::uint64_t mask = 0;
  return absl::SimpleHexAtoi(hex, &mask) && ((mask >> bit) & 1) != 0;
}

// Names in a directory that start with `prefix`, sorted; numbers sort as numbers (node2 < node10).
std::vector<std::string> Entries(const Host& host, const std::string& path,
                                 std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(host.root + path, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

// "MemTotal:  24689 kB" -> bytes.
std::uint64_t KilobytesAfter(const std::string& text, std::string_view key) {
  std::uint64_t kilobytes = 0;
  const std::string line = LineAfter(text, key);
  return absl::SimpleAtoi(line.substr(0, line.find(' ')), &kilobytes) ? kilobytes * 1024 : 0;
}

Check HugePagesOf(const Host& host, const std::string& size, const std::string& folder,
                  bool expected) {
  const std::string base = "/sys/kernel/mm/hugepages/" + folder;
  Check check{"huge pages " + size, Verdict::kOk, "", ""};
  if (!fs::exists(host.root + base)) {
    check.value = "not supported by this kernel or CPU";
    if (expected) {
      check.verdict = Verdict::kWarn;
      check.advice = "tables will lie on 4 KiB pages: reads are slower";
    }
    return check;
  }
  const std::uint64_t total = ReadNumber(host, base + "/nr_hugepages");
  const std::uint64_t free = ReadNumber(host, base + "/free_hugepages");
  check.value = absl::StrCat(free, " free of ", total);
  if (free > 0 || !expected) return check;
  check.verdict = Verdict::kWarn;
  check.advice = total > 0
                     ? "all are in use: raise vm.nr_hugepages, or expect 4 KiB pages for new tables"
                     : "tables will lie on 4 KiB pages: sysctl vm.nr_hugepages=N (512 a GiB) "
                       "makes reads 1.2 to 1.4 times as fast";
  return check;
}

}  // namespace

std::string_view Name(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarn ? "warn" : "fail";
}

Check CheckMemlock(const Host& host) {
  const std::uint64_t limit = SoftLimit(host, "Max locked memory");
  const bool capable = HasCapability(host, kCapIpcLock);
  Check check{"memlock", Verdict::kOk, limit == kUnlimited ? "unlimited" : RoundSize(limit), ""};
  if (capable) check.value += " (CAP_IPC_LOCK: no limit applies)";
  if (!capable && limit < kGiB) {
    check.verdict = Verdict::kWarn;
    check.advice =
        "too little to register table memory with an RDMA NIC (mapped and stream need none): "
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit, or the capability IPC_LOCK";
  }
  return check;
}

std::vector<Check> CheckHugePages(const Host& host) {
  return {HugePagesOf(host, "2 MiB", "hugepages-2048kB", true),
          HugePagesOf(host, "1 GiB", "hugepages-1048576kB", false)};
}

Check CheckNuma(const Host& host) {
  Check check{"numa", Verdict::kOk, "", ""};
  std::vector<std::string> nodes;
  for (const std::string& node : Entries(host, "/sys/devices/system/node", "node")) {
    const std::string base = "/sys/devices/system/node/" + node;
    const std::string cpus = ReadText(host, base + "/cpulist");
    std::string meminfo = ReadText(host, base + "/meminfo");
    const std::size_t at = meminfo.find("MemTotal:");
    meminfo = at == std::string::npos ? "" : meminfo.substr(at);
    nodes.push_back(
        absl::StrCat(node, " ", RoundSize(KilobytesAfter(meminfo, "MemTotal:")),
                     cpus.empty() ? ", no cpus (CXL or HBM memory)" : ", cpus " + cpus));
  }
  check.value = nodes.empty() ? "one node (no NUMA in this kernel)" : absl::StrJoin(nodes, "; ");
  return check;
}

Check CheckCxl(const Host& host) {
  Check check{"cxl", Verdict::kOk, "", ""};
  std::vector<std::string> found;
  for (const std::string& name : Entries(host, "/sys/bus/cxl/devices", "mem")) {
    found.push_back("memory device " + name);
  }
  for (const std::string& name : Entries(host, "/sys/bus/dax/devices", "dax")) {
    const std::uint64_t bytes = ReadNumber(host, "/sys/bus/dax/devices/" + name + "/size");
    found.push_back(absl::StrCat("/dev/", name, " ", RoundSize(bytes)));
    if (fs::exists(host.root + "/dev/" + name)) {
      if (!host.device_owner) continue;
      const auto owner = host.device_owner("/dev/" + name);
      absl::StrAppend(
          &found.back(), ", ",
          owner.ok() ? *owner : absl::StrCat("owner unknown: ", owner.status().message()));
    } else {
      check.verdict = Verdict::kWarn;
      check.advice = absl::StrCat("/dev/", name,
                                  " is missing: load device_dax, or it is in system-ram mode "
                                  "(daxctl reconfigure-device --mode=devdax ",
                                  name, ")");
    }
  }
  check.value = found.empty() ? "no CXL or dax device" : absl::StrJoin(found, "; ");
  return check;
}

Check CheckFabrics(const Host& host) {
  Check check{"fabrics", Verdict::kOk, "mapped, stream", ""};
  std::vector<std::string> rdma = Entries(host, "/sys/class/infiniband", "");
  if (host.fabric_providers) {
    const auto providers = host.fabric_providers();
    if (!providers.ok()) {
      check.verdict = Verdict::kWarn;
      check.advice =
          absl::StrCat("libfabric offers nothing to `ofi`: ", providers.status().message());
    } else if (!providers->empty()) {
      absl::StrAppend(&check.value, ", ofi (", absl::StrJoin(*providers, ", "), ")");
    }
  }
  if (host.ucx_version) {
    const auto version = host.ucx_version();
    if (version.ok()) absl::StrAppend(&check.value, ", ucx (", *version, ")");
  }
  absl::StrAppend(&check.value,
                  rdma.empty() ? "; no RDMA device" : "; RDMA: " + absl::StrJoin(rdma, ", "));
  return check;
}

std::vector<Check> CheckRdma(const Host& host) {
  std::vector<Check> checks;
  for (const fabric::ofi::RdmaPort& port : fabric::ofi::ListRdmaPorts(host.root)) {
    Check check{absl::StrCat("rdma ", port.name()), Verdict::kOk, port.state, ""};
    for (const std::string& part : {port.link_layer, port.rate}) {
      if (!part.empty()) absl::StrAppend(&check.value, ", ", part);
    }
    const auto addresses = host.addresses && !port.interface.empty()
                               ? host.addresses(port.interface)
                               : std::vector<std::string>{};
    if (!port.interface.empty()) absl::StrAppend(&check.value, ", ", port.interface);
    if (!addresses.empty()) absl::StrAppend(&check.value, " ", absl::StrJoin(addresses, " "));
    absl::StrAppend(&check.value, ", ", port.gids.size(), " GIDs");
    if (port.numa_node >= 0) absl::StrAppend(&check.value, ", NUMA node ", port.numa_node);
    if (!port.active()) {
      check.verdict = Verdict::kWarn;
      check.advice = "the port is not active: see the cable, the switch, and `rdma link`";
    } else if (addresses.empty() || port.gids.empty()) {
      check.verdict = Verdict::kWarn;
      check.advice =
          "verbs connections are made by IP address: give the port's interface one (`ip addr`), or "
          "name another port with --ofi-host";
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

namespace {

Check RegistrationOf(const Host& host, const std::string& provider, const std::string& bind) {
  constexpr std::uint64_t kBytes = 256 * kMiB;
  Check check{absl::StrCat("register ", bind == "auto" ? provider : bind), Verdict::kOk, "", ""};
  for (const std::uint64_t page : {4096 * std::uint64_t{1}, 2 * kMiB}) {
    const auto took = host.registration(provider, bind, page, kBytes);
    absl::StrAppend(&check.value, check.value.empty() ? "" : "; ", FormatSize(page), " pages: ");
    if (took.ok()) {
      const double ms = std::chrono::duration<double, std::milli>(*took).count();
      absl::StrAppend(&check.value, absl::StrFormat("%.1f", ms * kGiB / kBytes), " ms a GiB");
      continue;
    }
    absl::StrAppend(&check.value, "not tried");
    check.verdict = Verdict::kWarn;
    check.advice = std::string(took.status().message());
  }
  return check;
}

}  // namespace

std::vector<Check> CheckRegistration(const Host& host) {
  std::vector<Check> checks;
  for (const fabric::ofi::RdmaPort& port : fabric::ofi::ListRdmaPorts(host.root)) {
    if (!port.active() || host.addresses(port.interface).empty()) continue;
    checks.push_back(RegistrationOf(host, "verbs;ofi_rxm", port.name()));
  }
  if (checks.empty()) checks.push_back(RegistrationOf(host, "tcp;ofi_rxm", "auto"));
  return checks;
}

Check CheckTmpfs(const Host& host) {
  Check check{"/dev/shm", Verdict::kOk, "", ""};
  const auto space = host.space("/dev/shm");
  if (!space.ok()) {
    check.verdict = Verdict::kWarn;
    check.value = std::string(space.status().message());
    check.advice = "mount a tmpfs on /dev/shm: the ofi provider `shm` needs one";
    return check;
  }
  check.value =
      absl::StrCat(RoundSize(space->free_bytes), " free of ", RoundSize(space->total_bytes));
  if (space->free_bytes < 256 * kMiB) {
    check.verdict = Verdict::kWarn;
    check.advice =
        "small: only the ofi provider `shm` needs it (mapped memory does not lie there); "
        "mount -o remount,size=1G /dev/shm, or an emptyDir of medium Memory in a pod";
  }
  return check;
}

Check CheckMemory(const Host& host) {
  const std::string meminfo = ReadText(host, "/proc/meminfo");
  const std::uint64_t available = KilobytesAfter(meminfo, "MemAvailable:");
  Check check{"memory", Verdict::kOk,
              absl::StrCat(RoundSize(available), " available of ",
                           RoundSize(KilobytesAfter(meminfo, "MemTotal:"))),
              ""};
  if (available < kGiB) {
    check.verdict = Verdict::kWarn;
    check.advice = "less than 1 GiB: give nodes less with --memory-per-node, or free memory";
  }
  return check;
}

Check CheckOpenFiles(const Host& host) {
  const std::uint64_t limit = SoftLimit(host, "Max open files");
  Check check{"open files", Verdict::kOk, limit == kUnlimited ? "unlimited" : absl::StrCat(limit),
              ""};
  if (limit < 1024) {
    check.verdict = Verdict::kWarn;
    check.advice = "a node needs a few descriptors per client and slab: ulimit -n 65536";
  }
  return check;
}

Check CheckPort(const Host& host, std::uint16_t port) {
  Check check{absl::StrCat("port ", port), Verdict::kOk, "free", ""};
  const absl::Status bound = host.bind(port);
  if (!bound.ok()) {
    check.verdict = Verdict::kWarn;
    check.value = "taken (" + std::string(bound.message()) + ")";
    check.advice =
        "expected where a controller runs; else `engramctl local up` takes another port, or give "
        "it one with --port";
  }
  return check;
}

std::vector<Check> CheckLoopback(const Host& host) {
  Check v4{"ipv4 loopback", Verdict::kOk, "127.0.0.1 answers", ""};
  if (const absl::Status status = host.loopback(AF_INET); !status.ok()) {
    v4 = {v4.name, Verdict::kFail, std::string(status.message()),
          "a local pool talks over 127.0.0.1: ip link set lo up"};
  }
  Check v6{"ipv6 loopback", Verdict::kOk, "::1 answers", ""};
  if (const absl::Status status = host.loopback(AF_INET6); !status.ok()) {
    v6 = {v6.name, Verdict::kWarn, std::string(status.message()),
          "pools on IPv4 do not mind; for IPv6: sysctl net.ipv6.conf.lo.disable_ipv6=0"};
  }
  return {v4, v6};
}

Check CheckClockSource(const Host& host) {
  const std::string source =
      ReadText(host, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  Check check{"clock source", Verdict::kOk, source.empty() ? "unknown" : source, ""};
  if (source == "hpet" || source == "acpi_pm" || source == "jiffies" ||
      source == "refined-jiffies") {
    check.verdict = Verdict::kWarn;
    check.advice =
        "reading this clock costs a system call (leases and deadlines read it often): see dmesg "
        "for "
        "why the TSC was given up, or boot with tsc=reliable";
  }
  return check;
}

Check CheckWallClock(const Host& host) {
  constexpr std::int64_t kYear2024 = 1'704'067'200;
  constexpr std::int64_t kYear2100 = 4'102'444'800;
  const std::int64_t now = host.unix_seconds();
  Check check{"wall clock", Verdict::kOk, HumanTime(now * 1000), ""};
  if (now < kYear2024 || now >= kYear2100) {
    check.verdict = Verdict::kFail;
    check.advice =
        "the date is impossible: ages and certificates will be wrong (leases do not use it); start "
        "chrony or set the date";
  }
  return check;
}

Check CheckIoUring(const Host& host) {
  const int error = host.io_uring();
  Check check{"io_uring", Verdict::kOk, "works", ""};
  if (error != 0) {
    check.verdict = Verdict::kWarn;
    check.value = std::strerror(error);
    check.advice = error == EPERM
                       ? "forbidden: sysctl kernel.io_uring_disabled=0, or allow it in the seccomp "
                         "profile; loading a checkpoint is slower without it"
                       : "loading a checkpoint is slower without it: a kernel from 5.6 on has it";
  }
  return check;
}

std::vector<Check> RunChecks(const Host& host) {
  constexpr std::uint16_t kDefaultPort = 7700;
  std::vector<Check> checks{CheckMemory(host), CheckMemlock(host)};
  for (Check& check : CheckHugePages(host)) checks.push_back(std::move(check));
  for (Check check : {CheckNuma(host), CheckCxl(host), CheckFabrics(host)}) {
    checks.push_back(std::move(check));
  }
  for (Check& check : CheckRdma(host)) checks.push_back(std::move(check));
  for (Check check : {CheckTmpfs(host), CheckOpenFiles(host), CheckPort(host, kDefaultPort)}) {
    checks.push_back(std::move(check));
  }
  for (Check& check : CheckLoopback(host)) checks.push_back(std::move(check));
  for (Check check : {CheckClockSource(host), CheckWallClock(host), CheckIoUring(host)}) {
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace engram::ctl
