// The RDMA devices of this machine as the kernel lists them, and which address stands for one.
//
// Readers and targets that speak verbs meet over rdma_cm: device, port and GID all follow from the
// local IP address that is bound. So choosing a NIC is choosing an address, and this is where a
// device name becomes one. Free functions: Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace engram::fabric::ofi {

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  std::string state;       // "ACTIVE", "DOWN", ...
  std::string link_layer;  // "Ethernet", "InfiniBand"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::string interface;   // network interface that carries its addresses; empty: none
  int numa_node = -1;
  std::vector<std::string> gids;  // that are set: "RoCE v2 fe80::1"

  bool active() const { return state == "ACTIVE"; }
  std::string name() const { return device + ":" + std::to_string(port); }
};

// In the order of device and port. `root` is a prefix of /sys: empty on a real machine.
std::vector<RdmaPort> ListRdmaPorts(const std::string& root = "");

// IP addresses of a network interface, IPv4 first.
std::vector<std::string> AddressesOf(const std::string& interface);

// Of the processor that the caller runs on; -1: unknown.
int CurrentNumaNode();

// The provider reads through an RDMA NIC, without the target's CPU.
bool IsRdmaProvider(const std::string& provider);

// What to bind: a node for fi_getinfo, or the name of the device where there are no addresses.
struct Binding {
  std::string node;    // empty: the provider chooses
  std::string domain;  // empty: the provider chooses
  std::string device;  // the RDMA device that this is of; empty: unknown
  int numa_node = -1;  // of the device; -1: unknown
};

// `bind` is an address, a device ("mlx5_0"), a port of one ("mlx5_0:2"), or "auto": an active port
// of a provider for RDMA, else 127.0.0.1. Of several ports that can be bound it is the first that
// is near the NUMA node `near`, else the first. FailedPrecondition names the ports that there are
// and what is wrong with each. `root` is as above.
absl::StatusOr<Binding> ResolveBinding(const std::string& provider, const std::string& bind,
                                       int near = -1, const std::string& root = "");

}  // namespace engram::fabric::ofi
