// How bytes move: the reader's side of one transport, in two pure interfaces (ARCHITECTURE section
// 3).
//
//   Fabric     one transport opened in this process: knows peers, imports remote regions, registers
//   memory. ReadQueue  a thread-confined queue of one-sided reads on it: batch in, batch out.
//
// The owner's side is fabric/target.h. Nothing is ever written remotely. Control calls (AddPeer,
// Import, Register, OpenQueue) may block up to their deadline and allocate; Submit and Poll never
// block, and after warm-up they do not allocate, lock a contended lock or log.
//
// Life of one read: the caller owns the local segments until the read's completion has been polled,
// or until Abandon(peer) or Close() has returned; after that no byte of it lands any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/read_status.h"
#include "engram/session.h"

namespace engram::fabric {

using PeerId = StrongId<struct PeerIdTag, std::uint32_t>;

enum class Lane : std::uint8_t { kUrgent = 0, kBulk = 1 };

// Where memory lives: host, or CUDA device `device`.
struct MemoryKind {
  enum class Place : std::uint8_t { kHost, kCuda } place = Place::kHost;
  std::uint32_t device = 0;
  friend bool operator==(const MemoryKind&, const MemoryKind&) = default;
};

// What a reader needs to reach a piece of a peer's memory: a value, sliceable.
// `address` and `key` mean what the fabric says they mean: only offsets from `address` are
// arithmetic.
struct RemoteRegion {
  PeerId peer;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t key = 0;

  // REQUIRES: offset + bytes <= length.
  RemoteRegion Slice(std::uint64_t offset, std::uint64_t bytes) const {
    return {peer, address + offset, bytes, key};
  }
};

// Local memory registered for landing reads. RAII: destroying it deregisters; REQUIRES then: no
// read in flight targets it.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
  virtual MemoryKind kind() const { return {}; }
};

// A part of a read lands here. `region` covers [data, data + bytes) where
// FabricInfo::needs_registration, else it may be null.
struct LocalSegment {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  const MemoryRegion* region = nullptr;
};

inline constexpr std::uint32_t kMaxLocalSegments = 3;

// Read `length` bytes at `offset` of `region`; they land in the local segments in order.
// REQUIRES: the segments' bytes sum to `length`. A range outside the region completes as kRefused.
// Two cache lines: a mapped read touches one of them twice in a few tens of nanoseconds.
struct alignas(64) ReadOp {
  RemoteRegion region;
  std::uint64_t offset = 0;
  std::uint64_t cookie = 0;  // given back in the completion
  std::uint32_t length = 0;
  Lane lane = Lane::kUrgent;
  std::uint8_t segments = 1;
  LocalSegment local[kMaxLocalSegments];
};

struct ReadCompletion {
  std::uint64_t cookie = 0;
  ReadStatus status = ReadStatus::kOk;
};

// Rows of one width for ReadQueue::ReadNow: `row_bytes` bytes at address from[i] land at to[i] and,
// where `seals` is not null, the 8 bytes after them at seals[i].
struct RowsNow {
  std::uint32_t row_bytes = 0;
  std::size_t count = 0;
  const std::uint64_t* from = nullptr;  // the address of an imported region and an offset
  std::byte* const* to = nullptr;
  std::uint64_t* seals = nullptr;
  std::size_t next = 0;  // so many more of `from` will be read soon: only a hint
};

// What a wrong or withdrawn key does to the reader.
enum class WrongKey : std::uint8_t {
  kFailsRead,   // that read completes as kRefused, others go on
  kBreaksPeer,  // every outstanding read of that peer fails and the connection is made anew
  kUndetected,  // the fabric cannot tell (mapped memory is reachable until it is unmapped)
};

// What a transport can do: data, checked when it is opened, never when a read is posted.
struct FabricInfo {
  FabricKind kind = FabricKind::kLoopback;
  std::string provider;             // ofi: the libfabric provider; else the kind's name
  bool one_sided = false;           // the target's program does not see the read
  bool offloaded = false;           // the target's CPU does not see the read
  bool target_progress = false;     // the target must run a progress thread
  bool needs_registration = false;  // local segments must be registered
  bool device_memory = false;
  std::uint64_t max_op_bytes = 0;
  std::uint32_t max_segments = kMaxLocalSegments;
  std::uint32_t max_outstanding = 0;  // reads a queue accepts before it pushes back
  WrongKey wrong_key = WrongKey::kFailsRead;
  // Whoever knows a key and the target's address reads, whatever became of its session, until the
  // memory is hidden: each tenant's memory is in a protection domain of its own, and is registered
  // anew when a client is revoked. Mapped memory is not meant: it is not reached by key.
  bool bearer_keys = false;
};

// Spin for `spin`, then block; spin = 0 blocks at once; spin = Duration::max() never blocks.
struct WaitMode {
  Duration spin = std::chrono::microseconds(50);
};

// Thread-confined: call from the owner thread only.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;  // = Close()

  // Starts ops[0..n) in order as one batch and returns n. n < ops.size() is back pressure, never an
  // error: poll, then submit the rest. A read that cannot work completes with a status, through
  // Poll.
  virtual std::size_t Submit(std::span<const ReadOp> ops) = 0;

  // The short way where memory is mapped: reads the rows and returns true. False: this queue
  // cannot, or is closed; Submit them. REQUIRES: each row and its seal lie inside a region that
  // Import of this fabric returned and that is not released.
  virtual bool ReadNow(const RowsNow&) { return false; }

  // Moves up to out.size() completions into `out`, in any order, and drives progress. Never blocks.
  virtual std::size_t Poll(std::span<ReadCompletion> out) = 0;

  // To sleep: returns a descriptor that becomes readable when Poll may have something, or -1 when
  // Poll has something now (or nothing can be outstanding): poll before sleeping. Valid until the
  // next call.
  virtual int ArmWait() = 0;

  // Ends every outstanding read of `peer`; returns after the flush: no byte of them lands
  // afterwards. Their completions (kFlushed, or kOk if they were done before) are polled as usual.
  // Later reads of the peer work.
  virtual void Abandon(PeerId peer) = 0;

  // Ends every outstanding read without completions and refuses new ones (Submit returns 0).
  // Idempotent.
  virtual void Close() = 0;
};

// How to reach the owner of some regions, learnt on a read session.
struct PeerAddress {
  PathAddress path;
  SessionToken token;
  NodeId node;
  Incarnation incarnation;
};

// Thread-safe.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual const FabricInfo& info() const = 0;

  // Unavailable: nobody answers before the deadline; PermissionDenied: the token is refused;
  // FailedPrecondition: it is not this host (mapped), or another incarnation answers.
  virtual absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) = 0;
  // REQUIRES: no read of the peer is outstanding in any queue and its imports are released.
  virtual void RemovePeer(PeerId peer) = 0;

  // Makes a granted region readable (mapped: maps its slab) and returns it as this process sees it,
  // peer and length unchanged. `granted` has the peer, and the rest as in the GrantPath.
  virtual absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) = 0;
  // Undoes one Import (mapped: unmaps the slab after its last region). REQUIRES: no read of it
  // outstanding.
  virtual void Release(const RemoteRegion& imported) = 0;

  // Registers memory of the caller for landing. `memory` must outlive the result.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                                 MemoryKind kind) = 0;

  struct QueueOptions {
    std::uint32_t depth = 4096;  // outstanding reads wanted; the queue may grant fewer
    WaitMode wait;
  };
  virtual absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) = 0;
};

}  // namespace engram::fabric
