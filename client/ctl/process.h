// Daemons of a local pool: started in a session of their own, remembered by pid, start time and
// boot, so that a recycled pid is never taken for them and never killed.
//
// Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"

namespace engram::ctl {

struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: clock ticks since boot
  std::string boot;               // /proc/sys/kernel/random/boot_id
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

struct Command {
  std::string program;                 // path
  std::vector<std::string> arguments;  // without the program's name
  std::string log;                     // stdout and stderr are appended to it
};

// Starts a daemon: own session, no terminal, no inherited descriptor. NotFound: no such program.
absl::StatusOr<ProcessId> StartDaemon(const Command& command);

// False for a pid that is free, taken by another process, or a zombie.
bool IsRunning(const ProcessId& process);
// When it was started, in ms of wall-clock time; 0 when it does not run.
std::int64_t StartedUnixMs(const ProcessId& process);

// SIGTERM to all that run, SIGKILL to those left after `grace`; returns when all are gone.
// DeadlineExceeded: one survived SIGKILL for 5 s (it hangs in the kernel).
absl::Status StopProcesses(const std::vector<ProcessId>& processes, Duration grace);

// One line: pid, start ticks, boot id. NotFound when there is no such file or it does not parse.
absl::Status WritePidFile(const std::string& path, const ProcessId& process);
absl::StatusOr<ProcessId> ReadPidFile(const std::string& path);

// The last `lines` lines of a file; empty when it cannot be read.
std::string TailOf(const std::string& path, int lines);

}  // namespace engram::ctl
