#include "poolserver/rpc/pool_node_settings.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/identity.h"
#include "engram/settings/units.h"
#include "engram/version.h"
#include "poolserver/rpc/memory_settings.h"
#include "poolserver/rpc/nvme_settings.h"
#include "proto/controllers.h"
#include "proto/tls_settings.h"

namespace engram::poolserver {
namespace {

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

std::vector<Setting> FabricSettings() {
  return {
      Setting::List("fabrics", "auto",
                    "Fabrics to serve on: mapped, stream, ofi, ucx; auto is mapped and stream."),
      Setting::Text("stream_listen", "127.0.0.1:0",
                    "HOST:PORT of the stream fabric, port 0 takes a free one; or unix:PATH, "
                    "for readers of this host."),
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
      Setting::List("ofi_host", "auto",
                    "Where the ofi fabric listens, a path each: addresses, RDMA devices (mlx5_0, "
                    "mlx5_0:2), or auto: an active RDMA port, near --numa-node if there is one; "
                    "127.0.0.1 without RDMA."),
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
  out.ofi_hosts = settings.List("ofi_host");
  out.numa_node = static_cast<int>(settings.Integer("numa_node"));
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
                  {},
                  [](const Settings& settings) { return OptionsFrom(settings).status(); }};
  for (const auto& group : {IdentitySettings(), wire::TlsSettings(), MemorySettings(),
                            NvmeSettings(), FabricSettings()}) {
    program.settings.insert(program.settings.end(), group.begin(), group.end());
  }
  return program;
}

absl::StatusOr<PoolNodeOptions> OptionsFrom(const Settings& settings) {
  PoolNodeOptions out;
  out.node = NodeId{settings.Text("node_id")};
  if (!IsIdentityName(out.node.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-id \"", out.node.name,
                     "\" is not 1 to 253 letters, digits and \"._-\"; a host name for instance"));
  }
  out.controller = settings.Text("controller");
  if (absl::Status good = wire::Controllers::Check(out.controller); !good.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--controller ", good.message()));
  }
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
  out.targets = TargetsFrom(settings);
  auto memory = MemoryTiersFrom(settings, &out.targets.devices);
  if (!memory.ok()) return memory.status();
  out.memory = *std::move(memory);
  auto nvme = NvmeTierFrom(settings);
  if (!nvme.ok()) return nvme.status();
  out.nvme = *std::move(nvme);
  out.loading.threads = static_cast<std::uint32_t>(settings.Integer("load_threads"));
  out.move_rate = settings.Size("move_rate");
  out.scrub_rate = settings.Size("scrub_rate");
  if (absl::Status good = CheckFabrics(out.targets); !good.ok()) return good;
  out.targets.mappable = std::any_of(out.memory.begin(), out.memory.end(),
                                     [](const auto& tier) { return tier.devices.empty(); });
  return out;
}

}  // namespace engram::poolserver
