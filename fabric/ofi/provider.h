// One libfabric provider opened in this process: fabric, domain, and what its memory registration
// wants. Everything that differs between providers is decided here, once, from what fi_getinfo
// says; FABRIC section 1d has the table.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"
#include "fabric/ofi/libfabric.h"
#include "fabric/ofi/rdma_ports.h"

namespace engram::fabric::ofi {

struct FidClose {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using Fid = std::unique_ptr<T, FidClose>;

struct ProviderOptions;

// ResolveBinding with what the options say.
absl::StatusOr<Binding> BindingOf(const ProviderOptions& options);

struct ProviderOptions {
  std::string provider = "tcp;ofi_rxm";
  // Address of the interface, an RDMA device, or "auto" (rdma_ports.h); not used by shm.
  std::string bind = "auto";
  // NUMA node that reads come from, or whose memory is read: "auto" takes a NIC there if it can.
  // -1: any.
  int near = -1;
  // Opened with FI_HMEM, so that memory of a GPU can be registered, and reads land there from the
  // NIC or not at all: never through a copy by the provider.
  bool device_memory = false;
  // What `bind` stands for, asked at the start and again for each endpoint.
  std::function<absl::StatusOr<Binding>(const ProviderOptions&)> resolve = BindingOf;
};

// An endpoint with what it needs. Closing it (in reverse order) flushes what is outstanding.
struct Endpoint {
  std::shared_ptr<const int> counted;  // among the provider's open endpoints
  Fid<fid_av> av;
  Fid<fid_cq> cq;
  Fid<fid_ep> ep;
};

// Registered memory and what a peer needs to reach it. Unregisters at its end.
struct Registration {
  Fid<fid_mr> mr;
  std::uint64_t address = 0;  // of the first byte, in the provider's style
  std::uint64_t key = 0;
};

// Thread-safe.
class Provider {
 public:
  // Unavailable: libfabric is not there. FailedPrecondition names the provider, what fi_getinfo
  // said and which providers there are.
  static absl::StatusOr<std::shared_ptr<Provider>> Open(const ProviderOptions& options);

  const std::string& name() const { return name_; }
  FabricInfo Describe() const;
  std::uint32_t local_iov_limit() const;
  std::uint32_t remote_iov_limit() const;
  std::uint64_t max_message_bytes() const;
  // Messages that an endpoint takes before it pushes back.
  std::size_t messages_at_once() const;
  bool needs_local_registration() const { return local_; }
  bool is_shm() const { return name_ == "shm"; }
  // The target's NIC serves reads without the target's program.
  bool offloaded() const { return offloaded_; }

  // On the address that the interface has now: another one than at the start if that is gone and
  // the device is the same. `blocking`: with a wait object for fi_cq_sread, where the provider has
  // one.
  absl::StatusOr<Endpoint> OpenEndpoint(std::size_t completions, bool blocking,
                                        bool* can_block = nullptr) const;
  // What the last endpoint was made on.
  Binding bound() const;
  // How many are open.
  long open_endpoints() const { return endpoints_.use_count() - 1; }
  // Registers for `access` (FI_READ: reads land here; FI_REMOTE_READ: peers read here).
  // ResourceExhausted names memlock.
  // Memory of a GPU: FailedPrecondition where the provider was not opened for it or cannot.
  absl::StatusOr<Registration> Register(std::span<const std::byte> memory, std::uint64_t access,
                                        MemoryKind kind = {}) const;

  // Unavailable, for a call of this provider that returned `error`.
  absl::Status Failed(std::string_view call, int error) const;

 private:
  explicit Provider(const ProviderOptions& options) : options_(options), name_(options.provider) {}
  absl::StatusOr<std::shared_ptr<fi_info>> InfoOf(const Binding& binding) const;
  // For an endpoint that is made now.
  std::shared_ptr<fi_info> InfoNow() const;
  absl::Status OpenDomain();
  std::uint64_t WantedKey() const;
  absl::Status RegisterOnDevice(std::span<const std::byte> memory, std::uint64_t access,
                                std::uint32_t device, fid_mr** mr) const;

  const ProviderOptions options_;
  const std::string name_;
  const Libfabric* library_ = nullptr;
  std::shared_ptr<fi_info> info_;  // that the domain was opened with
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  std::shared_ptr<const int> endpoints_ = std::make_shared<const int>(0);  // counts its holders
  bool virtual_addresses_ = false;
  bool provider_keys_ = false;
  bool local_ = false;
  bool offloaded_ = false;
  mutable Mutex mutex_;
  mutable Binding bound_ ABSL_GUARDED_BY(mutex_);  // the last one
  mutable std::shared_ptr<fi_info> bound_info_ ABSL_GUARDED_BY(mutex_);
};

// What all providers of this process have registered so far, and how long that took.
struct RegistrationCounters {
  std::uint64_t bytes = 0;
  Duration time = Duration(0);
};
RegistrationCounters Registrations();

// Names of the providers that can do remote reads on this machine, e.g. "tcp;ofi_rxm", "shm".
// Unavailable: libfabric is not there.
absl::StatusOr<std::vector<std::string>> ListProviders();

// Removes what the shm provider of processes that died by a signal left in /dev/shm.
void RemoveStaleShmFiles();

// Where a target is: its endpoint's name, which is new at each start, its incarnation, and a small
// region that a reader checks it by.
struct TargetLocation {
  std::string provider;
  std::vector<std::byte> name;
  Incarnation incarnation;
  std::uint64_t hello_address = 0;
  std::uint64_t hello_key = 0;
};
// PathAddress::address, "provider!hex".
std::string FormatLocation(const TargetLocation& location);
absl::StatusOr<TargetLocation> ParseLocation(std::string_view text);

// What lies in the hello region.
struct HelloRegion {
  std::uint64_t magic = 0x4d415247'4e450001;
  std::uint64_t incarnation = 0;
};

}  // namespace engram::fabric::ofi
