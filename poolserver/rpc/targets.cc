#include "poolserver/rpc/targets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric/dax/device_target.h"
#include "fabric/mapped/mapped_target.h"
#include "fabric/ofi/ofi_target.h"
#include "fabric/ucx/ucx_target.h"
#include "proto/grpc_server.h"

namespace engram::poolserver {
namespace {

absl::StatusOr<std::vector<FabricKind>> WantedFabrics(const TargetSettings& settings) {
  const std::vector<std::string>& names = settings.fabrics;
  if (names == std::vector<std::string>{"auto"}) {
    return std::vector<FabricKind>{FabricKind::kMapped, FabricKind::kStream};
  }
  std::vector<FabricKind> out;
  for (const std::string& name : names) {
    absl::StatusOr<FabricKind> kind = ParseFabricKind(name);
    if (!kind.ok() || *kind == FabricKind::kLoopback) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--fabrics ", absl::StrJoin(names, ","), ": \"", name,
          "\" is not a fabric of this program; use auto, or some of mapped, stream, ofi, ucx"));
    }
    if (std::find(out.begin(), out.end(), *kind) == out.end()) out.push_back(*kind);
  }
  if (!settings.devices.empty() &&
      std::find(out.begin(), out.end(), FabricKind::kMapped) == out.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--fabrics ", absl::StrJoin(names, ","),
                                                   " with --cxl-devices: add mapped, which keeps "
                                                   "the superblocks of devices; clients that have "
                                                   "not attached them take the other fabrics"));
  }
  if (out.empty()) {
    return absl::InvalidArgumentError(
        "--fabrics is empty; use auto, or some of mapped, stream, ofi, ucx");
  }
  return out;
}

absl::Status OpenDevices(const TargetSettings& settings, OpenedTargets* out) {
  for (const auto& device : settings.devices) {
    auto target = fabric::dax::OpenDeviceTarget({device, settings.device_lost});
    if (!target.ok()) return target.status();
    out->targets.push_back(*std::move(target));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<fabric::Target>> OpenMapped(const TargetSettings& settings) {
  fabric::MappedTargetOptions options;
  options.node = settings.node;
  if (!settings.runtime_dir.empty()) {
    if (mkdir(settings.runtime_dir.c_str(), 0700) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat("cannot make --runtime-dir ", settings.runtime_dir));
    }
    // The process id: an older process of this node must not be in the way of a newer one.
    options.address =
        absl::StrCat(settings.runtime_dir, "/", settings.node.name, ".", getpid(), ".mapped");
  }
  return fabric::OpenMappedTarget(options);
}

absl::StatusOr<std::unique_ptr<fabric::stream::StreamTarget>> OpenStream(
    const TargetSettings& settings) {
  // What reaches a Unix socket is up to the permissions of its folder.
  if (!absl::StartsWith(settings.stream_listen, "unix:")) {
    absl::Status ok = wire::CheckListen(settings.stream_listen, settings.insecure_listen);
    if (!ok.ok()) {
      return absl::Status(ok.code(), absl::StrCat("--stream-listen: ", ok.message()));
    }
  }
  fabric::stream::StreamTargetOptions options;
  options.listen = settings.stream_listen;
  options.advertise = settings.stream_advertise;
  options.threads = settings.stream_threads;
  options.wait = settings.wait;
  return fabric::stream::StreamTarget::Open(options);
}

absl::Status OpenOfiAt(const std::string& provider, const std::string& host,
                       const TargetSettings& settings, OpenedTargets* out) {
  fabric::ofi::OfiTargetOptions options;
  options.provider.provider = provider;
  options.provider.bind = host;
  options.provider.near = settings.numa_node;
  options.wait = settings.wait;
  auto target = fabric::ofi::OfiTarget::Open(options);
  if (!target.ok()) {
    return absl::Status(target.status().code(),
                        absl::StrCat("--ofi-providers ", provider, " on --ofi-host ", host, ": ",
                                     target.status().message()));
  }
  out->targets.push_back(*std::move(target));
  return absl::OkStatus();
}

// A path for each provider and host: readers spread over them, and go on over one when another
// fails.
absl::Status OpenOfi(const TargetSettings& settings, OpenedTargets* out) {
  if (settings.ofi_providers.empty() || settings.ofi_hosts.empty()) {
    return absl::InvalidArgumentError(
        "--fabrics has ofi, and --ofi-providers or --ofi-host is empty; name a provider, for "
        "instance tcp;ofi_rxm, and an address, an RDMA device or auto");
  }
  for (const std::string& provider : settings.ofi_providers) {
    // It binds nothing: more than one would be the same path.
    const std::size_t hosts = provider == "shm" ? 1 : settings.ofi_hosts.size();
    for (std::size_t i = 0; i < hosts; ++i) {
      if (absl::Status opened = OpenOfiAt(provider, settings.ofi_hosts[i], settings, out);
          !opened.ok()) {
        return opened;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status OpenUcx(const TargetSettings& settings, OpenedTargets* out) {
  fabric::ucx::UcxTargetOptions options;
  options.transport = {settings.ucx_transports, settings.ucx_devices, settings.ucx_host};
  options.wait = settings.wait;
  auto target = fabric::ucx::UcxTarget::Open(options);
  if (!target.ok()) {
    return absl::Status(target.status().code(),
                        absl::StrCat("--ucx-tls ", settings.ucx_transports, " on --ucx-devices ",
                                     settings.ucx_devices, " at --ucx-host ", settings.ucx_host,
                                     ": ", target.status().message()));
  }
  out->targets.push_back(*std::move(target));
  return absl::OkStatus();
}

absl::Status OpenOne(FabricKind kind, const TargetSettings& settings, OpenedTargets* out) {
  if (kind == FabricKind::kMapped) {
    if (settings.mappable) {
      auto target = OpenMapped(settings);
      if (!target.ok()) return target.status();
      out->targets.push_back(*std::move(target));
    }
    return OpenDevices(settings, out);
  } else if (kind == FabricKind::kStream) {
    auto target = OpenStream(settings);
    if (!target.ok()) return target.status();
    out->stream = target->get();
    out->targets.push_back(*std::move(target));
  } else if (kind == FabricKind::kUcx) {
    return OpenUcx(settings, out);
  } else {
    return OpenOfi(settings, out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFabrics(const TargetSettings& settings) {
  return WantedFabrics(settings).status();
}

absl::StatusOr<OpenedTargets> OpenTargets(const TargetSettings& settings) {
  auto kinds = WantedFabrics(settings);
  if (!kinds.ok()) return kinds.status();
  OpenedTargets out;
  for (FabricKind kind : *kinds) {
    if (absl::Status opened = OpenOne(kind, settings, &out); !opened.ok()) return opened;
  }
  return out;
}

}  // namespace engram::poolserver
