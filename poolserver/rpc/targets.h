// Opens the fabrics that a pool node was asked to serve on. Free functions: Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric/dax/owned_device.h"
#include "fabric/fabric.h"
#include "fabric/stream/stream_target.h"
#include "fabric/target.h"

namespace engram::poolserver {

struct TargetSettings {
  NodeId node;
  // Of mapped, stream, ofi, ucx; "auto" = mapped and stream.
  std::vector<std::string> fabrics{"auto"};
  std::string stream_listen = "127.0.0.1:0";
  std::string stream_advertise;  // host or host:port that clients are told; empty: as listened
  std::uint32_t stream_threads = 1;
  bool insecure_listen = false;
  std::string runtime_dir;  // of the mapped socket; empty: an abstract name
  std::vector<std::string> ofi_providers;
  // Where ofi listens, a path for each: addresses, RDMA devices, or auto.
  std::vector<std::string> ofi_hosts{"auto"};
  int numa_node = -1;                  // of the memory: auto takes a NIC there if it can
  std::string ucx_transports;          // as UCX_TLS; empty: UCX chooses
  std::string ucx_devices = "lo";      // as UCX_NET_DEVICES
  std::string ucx_host = "127.0.0.1";  // where ucx listens
  // Some memory of this node is the kernel's: other processes of this host map it.
  bool mappable = true;
  // Where slabs lie, when they are no memfds: `mapped` then means that readers map these.
  std::vector<std::shared_ptr<fabric::dax::OwnedDevice>> devices;
  // One of them was claimed by another node; see fabric/dax/device_target.h.
  std::function<void(const absl::Status&)> device_lost = nullptr;
  fabric::WaitMode wait;
};

struct OpenedTargets {
  std::vector<std::unique_ptr<fabric::Target>> targets;
  fabric::stream::StreamTarget* stream = nullptr;  // among `targets`; null when not asked for
};

// Whether they can be meant: known fabrics, mapped where there are devices.
absl::Status CheckFabrics(const TargetSettings& settings);
// Every fabric that was asked for, or an error that names the one that cannot be had.
absl::StatusOr<OpenedTargets> OpenTargets(const TargetSettings& settings);

}  // namespace engram::poolserver
