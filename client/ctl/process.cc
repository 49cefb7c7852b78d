#include "client/ctl/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

extern char** environ;

namespace engram::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

struct ProcStat {
  char state = '?';
  std::uint64_t start_ticks = 0;
};

std::optional<ProcStat> ReadStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in brackets may hold spaces and brackets: fields are counted from the last ')'.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  if (!fields) return std::nullopt;
  return stat;
}

// A signal that cannot reach another process: the descriptor is opened first, then the start time
// checked, so the pid cannot be recycled in between.
void Signal(const ProcessId& process, int signal) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) return;
  if (IsRunning(process)) syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0);
  close(fd);
}

// Waits until none runs or `limit` has passed; true when none does.
bool WaitUntilGone(const std::vector<ProcessId>& processes, Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    bool running = false;
    for (const ProcessId& process : processes) {
      waitpid(process.pid, nullptr, WNOHANG);  // reaps it where it is a child of ours
      running = running || IsRunning(process);
    }
    if (!running) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

}  // namespace

absl::StatusOr<ProcessId> StartDaemon(const Command& command) {
  if (access(command.program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(command.program, " is missing or cannot be run: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> words{command.program};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, command.program.c_str(), &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot start ", command.program, ": ", std::strerror(error)));
  }
  // Our child cannot be reaped by anybody else, so its stat is there even if it died at once.
  const auto stat = ReadStat(pid);
  return ProcessId{pid, stat ? stat->start_ticks : 0, BootId()};
}

bool IsRunning(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const auto stat = ReadStat(process.pid);
  return stat && stat->start_ticks == process.start_ticks && stat->state != 'Z' &&
         stat->state != 'X' && process.boot == BootId();
}

std::int64_t StartedUnixMs(const ProcessId& process) {
  if (!IsRunning(process)) return 0;
  timespec boot{};
  timespec wall{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_REALTIME, &wall);
  const std::int64_t booted_ms =
      (wall.tv_sec - boot.tv_sec) * 1000 + (wall.tv_nsec - boot.tv_nsec) / 1'000'000;
  const auto ticks_per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return booted_ms + static_cast<std::int64_t>(process.start_ticks * 1000 / ticks_per_second);
}

absl::Status StopProcesses(const std::vector<ProcessId>& processes, Duration grace) {
  for (const ProcessId& process : processes) Signal(process, SIGTERM);
  if (WaitUntilGone(processes, grace)) return absl::OkStatus();
  for (const ProcessId& process : processes) Signal(process, SIGKILL);
  if (WaitUntilGone(processes, seconds(5))) return absl::OkStatus();
  std::vector<std::string> left;
  for (const ProcessId& process : processes) {
    if (IsRunning(process)) left.push_back(absl::StrCat(process.pid));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("pid ", absl::StrJoin(left, ", "),
                   " survived SIGKILL for 5 s (it hangs in the kernel: see /proc/PID/stack)"));
}

absl::Status WritePidFile(const std::string& path, const ProcessId& process) {
  std::ofstream file(path, std::ios::trunc);
  file << process.pid << ' ' << process.start_ticks << ' ' << process.boot << '\n';
  file.close();
  if (file) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<ProcessId> ReadPidFile(const std::string& path) {
  std::ifstream file(path);
  ProcessId process;
  if (file >> process.pid >> process.start_ticks >> process.boot) return process;
  return absl::NotFoundError(absl::StrCat(path, " names no process"));
}

std::string TailOf(const std::string& path, int lines) {
  std::ifstream file(path);
  std::deque<std::string> last;
  std::string line;
  while (std::getline(file, line)) {
    last.push_back(line);
    if (last.size() > static_cast<std::size_t>(lines)) last.pop_front();
  }
  return absl::StrJoin(last, "\n");
}

}  // namespace engram::ctl
