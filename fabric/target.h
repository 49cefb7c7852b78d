// How bytes are reached: the owner's side of one transport. A pool node opens one Target per
// fabric, exposes each replica's memory on it, and grants it to sessions. The protocol that decides
// *when* is poolserver's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "fabric/fabric.h"
#include "fabric/memory.h"

namespace engram::fabric {

// What a GrantPath carries, less the path number.
struct ExposedRegion {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t key = 0;
};

// A replica's bytes inside a slab.
struct ExposedMemory {
  const Slab* slab = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  // Reads start at multiples of this (the stride), where the fabric checks it.
  std::uint32_t alignment = 1;
  ShardKey shard = {};  // whose replica it is, for those who look at the memory by itself
};

// InvalidArgument unless `memory` lies inside its slab.
absl::Status CheckExposed(const ExposedMemory& memory);

// Thread-safe.
class Target {
 public:
  virtual ~Target() = default;  // = Stop()
  virtual const FabricInfo& info() const = 0;
  // What clients need to reach this target; final once the target is open.
  virtual PathAddress address() const = 0;

  // The incarnation that the state store issued to this process; peers that expect another one are
  // refused. Called at most once, before the first session is admitted, on targets that were opened
  // before it was known. Fabrics that do not check it ignore it.
  virtual void SetIncarnation(Incarnation incarnation) { static_cast<void>(incarnation); }

  // Whether it can expose memory of this slab's kind at all; Expose may still refuse.
  virtual bool Reaches(const Slab& slab) const {
    static_cast<void>(slab);
    return true;
  }
  // Registers memory for remote reads. Keys of ours are 64 random bits and never reused in a
  // process's life. REQUIRES: the slab outlives Hide(key). ResourceExhausted names the limit
  // (memlock, queue, ...).
  virtual absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) = 0;
  // Deregisters. Returns when no thread of this target reads the memory any more. Unknown keys are
  // ignored.
  virtual void Hide(std::uint64_t key) = 0;

  // Another target of this transport whose memory lies in a protection domain of its own: a key of
  // one is worth nothing to who is connected to the other. It has its own address and incarnation,
  // the latter as this one has it now. Unimplemented unless info().bearer_keys.
  virtual absl::StatusOr<std::unique_ptr<Target>> OpenDomain() const {
    return absl::UnimplementedError("this fabric looks at sessions and has no domains");
  }

  // Whether the device has another address by now than address() says, so that nobody can connect
  // any more; OpenDomain opens one that can be reached. Only where info().bearer_keys. Asked once a
  // second.
  virtual bool Moved() const { return false; }

  // A session may connect and read what is granted to it. Fabrics whose keys are bearer tokens
  // (ofi) ignore sessions: info().bearer_keys and the docs say so.
  virtual void Admit(const SessionToken& session) = 0;
  // The same for a session that reads on the budget of a tenant; fabrics whose reads the node does
  // not see cannot hold it to one.
  virtual void AdmitFor(const SessionToken& session, const std::string& tenant) {
    static_cast<void>(tenant);
    Admit(session);
  }
  // Rows a second by tenant; those that are not named have no limit.
  virtual void SetBudgets(std::span<const std::pair<std::string, std::uint64_t>> budgets) {
    static_cast<void>(budgets);
  }
  // Its connections are closed and its grants forgotten.
  virtual void Dismiss(const SessionToken& session) = 0;
  virtual void Allow(const SessionToken& session, std::uint64_t key) = 0;
  virtual void Disallow(const SessionToken& session, std::uint64_t key) = 0;

  // Closes every connection and joins every thread. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace engram::fabric
