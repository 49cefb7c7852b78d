// What a command's status means to the shell: 0 ok, 1 failed, 2 usage, 3 not found, 4 unavailable,
// 5 timed out. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace engram::ctl {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitNotFound = 3,
  kExitUnavailable = 4,
  kExitTimedOut = 5,
};

// The caller typed something that cannot be meant: the command never started.
absl::Status UsageError(const std::string& message);
// The command has said everything on its own output; only the exit code is left to tell.
absl::Status AlreadyReported(absl::StatusCode code);

ExitCode ExitCodeOf(const absl::Status& status);
bool IsReported(const absl::Status& status);
// `status` with "what: " before its message, marks kept.
absl::Status Annotated(const absl::Status& status, const std::string& what);

}  // namespace engram::ctl
