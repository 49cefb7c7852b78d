// The owner's side of mapped memory: a Unix socket on which readers of the same host are given
// read-only descriptors of slabs (ARCHITECTURE section 4, "Mapped memory").
//
// Who is let in: a user of the allowed uids (SO_PEERCRED) that presents an admitted session's
// token. What it is given: slabs in which its session is allowed at least one region. A descriptor
// cannot be taken back: what was mapped stays readable until the reader unmaps it, and the lease
// protocol waits for that.
//
// One thread serves all connections; no peer can hold up another: sockets never block, messages and
// connections are bounded, a peer that does not authenticate in time or does not read its replies
// is cut off.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "fabric/target.h"

namespace engram::fabric {

struct MappedTargetOptions {
  NodeId node;
  Incarnation incarnation;
  std::string address;              // "@name", "/path"; empty: a fresh abstract name
  std::vector<uid_t> allowed_uids;  // empty: this process's user, and root
  std::uint32_t max_connections = 1024;
  Duration open_deadline = std::chrono::seconds(2);  // to authenticate
};

// AlreadyExists: somebody listens at the address. FailedPrecondition: it cannot be bound (says
// why).
absl::StatusOr<std::unique_ptr<Target>> OpenMappedTarget(const MappedTargetOptions& options);

}  // namespace engram::fabric
