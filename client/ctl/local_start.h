// Bringing a local pool up: starts what is not running, waits until the controller answers and
// every node has joined, and says what went wrong (with the end of the log) when one of them dies
// on the way. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ctl/local_pool.h"
#include "client/ctl/pool_stub.h"
#include "client/ctl/terminal.h"

namespace engram::ctl {

struct StartReport {
  std::vector<std::string> started;  // names of the daemons that had to be started
};

// On failure stops again what this call had started. DeadlineExceeded: not ready within `limit`.
// FailedPrecondition: a daemon ended by itself; the message carries the end of its log.
absl::StatusOr<StartReport> StartAndAwait(const LocalPool& pool, Duration limit,
                                          const Terminal& terminal);

}  // namespace engram::ctl
