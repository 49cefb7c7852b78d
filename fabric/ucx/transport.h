// UCX opened in this process with a choice of its transports and devices: context, workers, and
// memory registration. What differs between transports is decided here, once.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/fabric.h"
#include "fabric/ucx/libucx.h"

namespace engram::fabric::ucx {

struct TransportOptions {
  // As UCX_TLS: "tcp", "sysv", "rc", "rc,tcp", ...; empty: those of $UCX_TLS, else UCX chooses.
  std::string transports = {};
  // As UCX_NET_DEVICES: "lo", "eth0", "mlx5_0:1", ...; "all": every one. Not used by sysv.
  std::string devices = "lo";
  // Address on which a target listens for connections. Not used in shared memory.
  std::string host = "127.0.0.1";
  // For tests of ucp_get without a NIC that serves it: let UCX emulate it. A peer can then read and
  // write all of the target's process, and a reader that dies in a read ends it.
  bool emulate_get = false;
};

// What UCX is told to use where `named` is wished for: never posix, also where UCX chooses. The
// posix transport of UCX 1.13 ends a reader that connects to a node that is gone: it follows a
// pointer that was never set. InvalidArgument: posix is named.
absl::StatusOr<std::string> UsableTransports(const std::string& named);

// Destroys with the library that made it.
struct WorkerDestroy {
  const Libucx* library = nullptr;
  void operator()(ucp_worker_h worker) const { library->worker_destroy(worker); }
};
using Worker = std::unique_ptr<ucp_worker, WorkerDestroy>;

struct MemoryUnmap {
  const Libucx* library = nullptr;
  ucp_context_h context = nullptr;
  void operator()(ucp_mem_h memory) const { library->mem_unmap(context, memory); }
};
// Registered memory. Unregisters at its end.
using MemoryHandle = std::unique_ptr<ucp_mem, MemoryUnmap>;

// Thread-safe. Outlives its workers and memory handles.
class Transport {
 public:
  // Unavailable: UCX is not there. FailedPrecondition names transports and devices and what UCX
  // said.
  static absl::StatusOr<std::shared_ptr<Transport>> Open(const TransportOptions& options);
  ~Transport();

  const Libucx& library() const { return *library_; }
  // The transports as they were asked for, or "auto".
  const std::string& name() const { return name_; }
  // Every transport that was asked for lets the target's NIC serve reads without its CPU.
  bool offloaded() const { return offloaded_; }
  // Readers connect by the target's worker address; else to the address on which it listens, which
  // UCX 1.13 survives better: a reader that dies while it connects by worker address can end the
  // target's process.
  bool in_shared_memory() const { return in_shared_memory_; }
  // Reads are ucp_get; else they are asked for by message.
  bool uses_get() const { return uses_get_; }
  std::uint64_t max_read_bytes() const;
  FabricInfo Describe() const;

  absl::StatusOr<Worker> OpenWorker() const;
  absl::StatusOr<std::vector<std::byte>> AddressOf(const Worker& worker) const;
  // `access` of UCP_MEM_MAP_PROT_*. ResourceExhausted names memlock.
  absl::StatusOr<MemoryHandle> Register(std::span<const std::byte> memory, unsigned access) const;
  // What a peer needs to read the memory.
  absl::StatusOr<std::vector<std::byte>> PackKey(const MemoryHandle& memory) const;

  // Unavailable, for a call that returned `error`.
  absl::Status Failed(std::string_view call, ucs_status_t error) const;

 private:
  Transport() = default;
  absl::Status OpenContext(const TransportOptions& options, const std::string& usable);

  std::string name_;
  const Libucx* library_ = nullptr;
  ucp_context_h context_ = nullptr;
  bool offloaded_ = false;
  bool uses_get_ = false;
  bool in_shared_memory_ = false;
};

// Where a target is, and its incarnation.
struct TargetLocation {
  enum class Kind : std::uint8_t { kSocket = 1, kWorker = 2 };
  std::string transports;
  Incarnation incarnation;
  Kind kind = Kind::kSocket;
  // A sockaddr, or the address of its worker, which is new at each start.
  std::vector<std::byte> address;
};
// PathAddress::address, "transports!hex".
std::string FormatLocation(const TargetLocation& location);
absl::StatusOr<TargetLocation> ParseLocation(std::string_view text);

}  // namespace engram::fabric::ucx
