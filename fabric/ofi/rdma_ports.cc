#include "fabric/ofi/rdma_ports.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace engram::fabric::ofi {
namespace {

constexpr char kDevices[] = "/sys/class/infiniband";
constexpr char kUnsetGid[] = "0000:0000:0000:0000:0000:0000:0000:0000";

// The first line of a file; empty where it cannot be read.
std::string LineOf(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The interface of a port: RoCE says it beside each GID, InfiniBand beside the device.
std::string InterfaceOf(const std::filesystem::path& device, const std::filesystem::path& port) {
  for (const std::string& index : NamesIn(port / "gid_attrs/ndevs")) {
    if (std::string name = LineOf(port / "gid_attrs/ndevs" / index); !name.empty()) return name;
  }
  const std::vector<std::string> names = NamesIn(device / "device/net");
  return names.empty() ? "" : names.front();
}

std::vector<std::string> GidsOf(const std::filesystem::path& port) {
  std::vector<std::string> gids;
  for (const std::string& index : NamesIn(port / "gids")) {
    const std::string gid = LineOf(port / "gids" / index);
    if (gid.empty() || gid == kUnsetGid) continue;
    gids.push_back(absl::StrCat(LineOf(port / "gid_attrs/types" / index), " ", gid));
  }
  return gids;
}

RdmaPort ReadPort(const std::filesystem::path& device, const std::string& number) {
  const std::filesystem::path folder = device / "ports" / number;
  RdmaPort port;
  port.device = device.filename();
  port.port = atoi(number.c_str());
  // "4: ACTIVE"
  const std::string state = LineOf(folder / "state");
  port.state = state.substr(std::min(state.size(), state.find(' ') + 1));
  port.link_layer = LineOf(folder / "link_layer");
  port.rate = LineOf(folder / "rate");
  port.interface = InterfaceOf(device, folder);
  if (const std::string node = LineOf(device / "device/numa_node"); !node.empty()) {
    port.numa_node = atoi(node.c_str());
  }
  port.gids = GidsOf(folder);
  return port;
}

// Which of `ports` a name means; empty name: any.
bool IsNamed(const RdmaPort& port, const std::string& name) {
  return name.empty() || name == port.device || name == port.name();
}

absl::StatusOr<Binding> AddressOfPort(const std::string& provider, const std::string& name,
                                      int near, const std::string& root) {
  std::vector<std::string> unusable;
  std::optional<Binding> found;
  for (const RdmaPort& port : ListRdmaPorts(root)) {
    if (!IsNamed(port, name)) {
      unusable.push_back(absl::StrCat(port.name(), " is not asked for"));
    } else if (!port.active()) {
      unusable.push_back(absl::StrCat(port.name(), " is ", port.state));
    } else if (const auto addresses = AddressesOf(port.interface); !addresses.empty()) {
      const bool nearer = near >= 0 && port.numa_node == near && found && found->numa_node != near;
      if (!found || nearer) found = Binding{addresses.front(), "", port.device, port.numa_node};
    } else {
      unusable.push_back(absl::StrCat(
          port.name(), " has no IP address",
          port.interface.empty() ? "" : absl::StrCat(" on ", port.interface), ": give it one"));
    }
  }
  if (found) return *found;
  return absl::FailedPreconditionError(absl::StrCat(
      "libfabric provider ", provider, " has no RDMA port to bind",
      name.empty() ? "" : absl::StrCat(" named ", name), ": ",
      unusable.empty() ? "this machine has no RDMA device" : absl::StrJoin(unusable, ", "),
      "; `rdma link` lists devices, `ip addr` addresses"));
}

// With the device that it is of, as far as there is one.
Binding BindingOfAddress(const std::string& address, const std::string& root) {
  Binding out{address, "", "", -1};
  for (const RdmaPort& port : ListRdmaPorts(root)) {
    const std::vector<std::string> addresses = AddressesOf(port.interface);
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) continue;
    out.device = port.device;
    out.numa_node = port.numa_node;
  }
  return out;
}

}  // namespace

std::vector<RdmaPort> ListRdmaPorts(const std::string& root) {
  std::vector<RdmaPort> ports;
  const std::filesystem::path folder = root + kDevices;
  for (const std::string& device : NamesIn(folder)) {
    for (const std::string& number : NamesIn(folder / device / "ports")) {
      ports.push_back(ReadPort(folder / device, number));
    }
  }
  return ports;
}

std::vector<std::string> AddressesOf(const std::string& interface) {
  std::vector<std::string> v4, v6;
  ifaddrs* all = nullptr;
  if (interface.empty() || getifaddrs(&all) != 0) return v4;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || interface != one->ifa_name) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (one->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text,
                sizeof text);
      v4.emplace_back(text);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      // Link-local ones need the interface's name beside them.
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
      v6.emplace_back(text);
    }
  }
  freeifaddrs(all);
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

int CurrentNumaNode() {
  unsigned cpu = 0, node = 0;
  return getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
}

bool IsRdmaProvider(const std::string& provider) {
  for (const char* prefix : {"verbs", "efa", "cxi", "opx", "psm3"}) {
    if (provider.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

absl::StatusOr<Binding> ResolveBinding(const std::string& provider, const std::string& bind,
                                       int near, const std::string& root) {
  if (provider == "shm") return Binding{};
  const bool automatic = bind == "auto";
  if (!IsRdmaProvider(provider)) return Binding{automatic ? "127.0.0.1" : bind, "", "", -1};
  const std::string name = automatic ? "" : bind;
  // These have addresses of their own.
  if (provider.rfind("verbs", 0) != 0) return Binding{"", name, name, -1};
  in6_addr address{};
  if (inet_pton(AF_INET, name.c_str(), &address) == 1 ||
      inet_pton(AF_INET6, name.c_str(), &address) == 1) {
    return BindingOfAddress(name, root);
  }
  return AddressOfPort(provider, name, near, root);
}

}  // namespace engram::fabric::ofi
