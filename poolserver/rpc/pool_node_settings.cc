#include "poolserver/rpc/pool_node_settings.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "engram/version.h"
#include "proto/tls_settings.h"

namespace engram::poolserver {
namespace {

using fabric::PageSize;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

std::vector<Setting> IdentitySettings() {
  return {
      Setting::Text("node_id", HostName(),
                    "Stable name of this node; two running nodes never share one."),
      Setting::Text(
          "controller", "127.0.0.1:7700",
          "HOST:PORT of engram-placement; of each, with commas, where there are several."),
      Setting::Text("listen", "127.0.0.1:0",
                    "HOST:PORT for read sessions; port 0 takes a free one."),
      Setting::Text("advertise", "",
                    "HOST or HOST:PORT that clients are told instead of the listen address."),
      Setting::Text(
          "failure_domain", "",
          "Copies of a shard go to nodes of different domains (empty: the node's own id)."),
      Setting::Bool("insecure_listen", "false",
                    "Allow listening where other hosts can connect, without TLS."),
      Setting::Bool("reflection", "false", "Serve gRPC reflection."),
      Setting::Text("metrics_listen", "", "HOST:PORT of Prometheus metrics (empty: none)."),
      Setting::Text(
          "health_listen", "",
          "HOST:PORT of the gRPC health service alone (empty: only beside read sessions)."),
      Setting::Time(
          "lease", "10s",
          "How long a session may read without renewing; retiring memory waits at most this long.",
          "100ms", "10m"),
      Setting::Integer("max_sessions", "4096", "Read sessions at one time.", "1", "1000000"),
  };
}

std::vector<Setting> MemorySettings() {
  return {
      Setting::Size("memory", "1GiB", "Memory for replicas.", "0", "64TiB"),
      Setting::Choice("huge_pages", "auto",
                      "auto: 2 MiB pages where reserved, else 4 KiB; 1GiB, 2MiB: these or refuse "
                      "to start; required: either of them or refuse; off: 4 KiB.",
                      {"auto", "1GiB", "2MiB", "off", "required"}),
      Setting::Integer("numa_node", "-1", "NUMA node of the memory; -1: any.", "-1", "1023"),
      Setting::Text(
          "memory_device", "",
          "DAX device that holds the replicas, /dev/dax0.0 for instance: CXL memory that is not "
          "system RAM. --memory is then a part of it, or 0 for all of it; tables must be sealed."),
      Setting::Size("slab_size", "256MiB",
                    "Memory is taken from the kernel in pieces of this size.", "2MiB", "64GiB"),
      Setting::Integer("load_threads", "4", "Threads that read and pack while loading.", "1",
                       "256"),
      Setting::Size("move_rate", "256MiB",
                    "Bytes per second that this node pulls from other nodes, all moves together; "
                    "0: no limit.",
                    "0", "1TiB"),
      Setting::Size(
          "scrub_rate", "32MiB",
          "Bytes per second of served replicas that are compared with their checksums; 0: none.",
          "0", "1TiB"),
  };
}

std::vector<Setting> FabricSettings() {
  return {
      Setting::List("fabrics", "auto",
                    "Fabrics to serve on: mapped, stream, ofi, ucx; auto is mapped and stream."),
      Setting::Text("stream_listen", "127.0.0.1:0",
                    "HOST:PORT of the stream fabric; port 0 takes a free one."),
      Setting::Text("stream_advertise", "",
                    "HOST or HOST:PORT of the stream fabric that clients are told (empty: the host "
                    "of --advertise, else as listened)."),
      Setting::Integer("stream_threads", "1", "Threads that answer the stream fabric.", "1", "64"),
      Setting::Time("spin", "50us",
                    "How long a data-plane thread spins before it sleeps; 0 never spins.", "0",
                    "1h"),
      Setting::Text("runtime_dir", "",
                    "Folder of the mapped fabric's socket (empty: an abstract socket, no file)."),
      Setting::List("ofi_providers", "tcp;ofi_rxm",
                    "libfabric providers of the ofi fabric, one path each."),
      Setting::Text("ofi_host", "auto",
                    "Where the ofi fabric listens: an address, an RDMA device (mlx5_0, mlx5_0:2), "
                    "or auto: the first active RDMA port, 127.0.0.1 without RDMA."),
      Setting::Text(
          "ucx_tls", "",
          "Transports of the ucx fabric, as UCX_TLS: rc, dc, tcp, sysv, ... (empty: UCX chooses)."),
      Setting::Text(
          "ucx_devices", "lo",
          "Devices of the ucx fabric, as UCX_NET_DEVICES: mlx5_0:1, eth0, ...; all: every one."),
      Setting::Text("ucx_host", "127.0.0.1",
                    "Address on which the ucx fabric listens (not used with sysv)."),
  };
}

std::uint64_t FreePages(PageSize pages) {
  std::uint64_t free = 0;
  std::ifstream(absl::StrCat("/sys/kernel/mm/hugepages/hugepages-",
                             static_cast<std::uint64_t>(pages) >> 10, "kB/free_hugepages")) >>
      free;
  return free;
}

bool Enough(PageSize pages, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(pages);
  return FreePages(pages) >= (bytes + page - 1) / page;
}

absl::Status NotEnough(const std::string& mode, PageSize pages, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(pages);
  const std::uint64_t needed = (bytes + page - 1) / page;
  return absl::ResourceExhaustedError(absl::StrCat(
      "--huge-pages ", mode, " with --memory ", FormatSize(bytes), " needs ", needed, " pages of ",
      FormatSize(page), ", and ", FreePages(pages), " are free; reserve them (",
      pages == PageSize::k2MiB
          ? absl::StrCat("sysctl vm.nr_hugepages=", needed)
          : absl::StrCat("echo ", needed,
                         " > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
      "), lower --memory, or take --huge-pages auto"));
}

absl::Status SetPages(const std::string& mode, Arena::Options* memory) {
  memory->allow_smaller_pages = mode == "auto";
  if (mode == "off" || (mode == "auto" && FreePages(PageSize::k2MiB) == 0)) {
    memory->pages = PageSize::k4KiB;
  } else if (mode == "1GiB" ||
             (mode == "required" && Enough(PageSize::k1GiB, memory->capacity_bytes))) {
    memory->pages = PageSize::k1GiB;
  } else {
    memory->pages = PageSize::k2MiB;
  }
  if (mode == "auto" || mode == "off" || Enough(memory->pages, memory->capacity_bytes)) {
    return absl::OkStatus();
  }
  return NotEnough(mode, memory->pages, memory->capacity_bytes);
}

absl::Status CheckMemory(const Arena::Options& memory) {
  const auto total = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (memory.capacity_bytes <= total) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("--memory ", FormatSize(memory.capacity_bytes),
                                                   " is more than this machine's ",
                                                   RoundSize(total), "; lower it"));
}

absl::Status UseDevice(const std::string& path, Arena::Options* memory) {
  auto described = fabric::DescribeDax(path);
  if (!described.ok()) {
    return absl::Status(described.status().code(),
                        absl::StrCat("--memory-device ", described.status().message()));
  }
  if (memory->capacity_bytes == 0) memory->capacity_bytes = described->bytes;
  if (memory->capacity_bytes > described->bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "--memory ", FormatSize(memory->capacity_bytes), " is more than the ",
        RoundSize(described->bytes), " of --memory-device ", path, "; lower it, 0 takes all"));
  }
  auto device = fabric::DaxDevice::Open(*described);
  if (!device.ok()) {
    return absl::Status(device.status().code(),
                        absl::StrCat("--memory-device ", device.status().message()));
  }
  memory->device = *std::move(device);
  memory->pages = PageSize::k4KiB;
  for (PageSize pages : {PageSize::k2MiB, PageSize::k1GiB}) {
    if (described->alignment >= static_cast<std::uint64_t>(pages)) memory->pages = pages;
  }
  return absl::OkStatus();
}

// Memory of the kernel: how much, on which pages.
absl::Status UseMemory(const Settings& settings, Arena::Options* memory) {
  if (memory->capacity_bytes == 0) {
    return absl::InvalidArgumentError(
        "--memory 0 is all of a --memory-device, and none is named; give it a size");
  }
  if (absl::Status ok = CheckMemory(*memory); !ok.ok()) return ok;
  return SetPages(settings.Text("huge_pages"), memory);
}

// The host of HOST or HOST:PORT.
std::string HostOf(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.find(']', colon) != std::string::npos) return address;
  return address.substr(0, colon);
}

TargetSettings TargetsFrom(const Settings& settings) {
  TargetSettings out;
  out.node = NodeId{settings.Text("node_id")};
  out.fabrics = settings.List("fabrics");
  out.stream_listen = settings.Text("stream_listen");
  out.stream_advertise = settings.Text("stream_advertise");
  if (out.stream_advertise.empty()) out.stream_advertise = HostOf(settings.Text("advertise"));
  out.stream_threads = static_cast<std::uint32_t>(settings.Integer("stream_threads"));
  out.insecure_listen = settings.Bool("insecure_listen");
  out.runtime_dir = settings.Text("runtime_dir");
  out.ofi_providers = settings.List("ofi_providers");
  out.ofi_host = settings.Text("ofi_host");
  out.ucx_transports = settings.Text("ucx_tls");
  out.ucx_devices = settings.Text("ucx_devices");
  out.ucx_host = settings.Text("ucx_host");
  out.wait.spin = settings.Time("spin");
  return out;
}

}  // namespace

Program PoolServerProgram() {
  Program program{"engram-poolserver",
                  "A pool node: holds shards of Engram tables in memory and serves their rows.",
                  std::string(Version()),
                  {}};
  for (const auto& group :
       {IdentitySettings(), wire::TlsSettings(), MemorySettings(), FabricSettings()}) {
    program.settings.insert(program.settings.end(), group.begin(), group.end());
  }
  return program;
}

std::string DescribePages(const Arena::Options& memory) {
  if (memory.device != nullptr) return memory.device->description().path;
  std::string pages =
      absl::StrCat("pages of ", FormatSize(static_cast<std::uint64_t>(memory.pages)));
  if (memory.pages != PageSize::k4KiB || !memory.allow_smaller_pages) return pages;
  constexpr auto kHuge = static_cast<std::uint64_t>(PageSize::k2MiB);
  return absl::StrCat(pages, " (none of 2MiB is free; sysctl vm.nr_hugepages=",
                      (memory.capacity_bytes + kHuge - 1) / kHuge,
                      " before the start reserves them)");
}

absl::StatusOr<PoolNodeOptions> OptionsFrom(const Settings& settings) {
  PoolNodeOptions out;
  out.node = NodeId{settings.Text("node_id")};
  if (out.node.name.empty() || out.node.name.size() > 253) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-id has ", out.node.name.size(),
                     " characters; use 1 to 253, a host name for instance"));
  }
  out.controller = settings.Text("controller");
  out.listen = settings.Text("listen");
  out.advertise = settings.Text("advertise");
  out.failure_domain = settings.Text("failure_domain");
  if (out.failure_domain.empty()) out.failure_domain = out.node.name;
  out.insecure_listen = settings.Bool("insecure_listen");
  out.tls = wire::TlsFilesFrom(settings);
  out.reflection = settings.Bool("reflection");
  out.metrics_listen = settings.Text("metrics_listen");
  out.health_listen = settings.Text("health_listen");
  out.lease = settings.Time("lease");
  out.max_sessions = static_cast<std::size_t>(settings.Integer("max_sessions"));
  out.memory.capacity_bytes = settings.Size("memory");
  out.memory.numa_node = static_cast<int>(settings.Integer("numa_node"));
  out.memory.slab_bytes = settings.Size("slab_size");
  const std::string& device = settings.Text("memory_device");
  const absl::Status ok =
      device.empty() ? UseMemory(settings, &out.memory) : UseDevice(device, &out.memory);
  if (!ok.ok()) return ok;
  out.loading.threads = static_cast<std::uint32_t>(settings.Integer("load_threads"));
  out.move_rate = settings.Size("move_rate");
  out.scrub_rate = settings.Size("scrub_rate");
  out.targets = TargetsFrom(settings);
  out.targets.mappable = device.empty();
  return out;
}

}  // namespace engram::poolserver
