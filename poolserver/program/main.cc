// engram-poolserver: reads settings, starts a pool node, waits for a signal, ends it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/log.h"
#include "engram/mutex.h"
#include "engram/settings/settings.h"
#include "engram/settings/units.h"
#include "engram/version.h"
#include "poolserver/rpc/pool_node.h"
#include "poolserver/rpc/pool_node_settings.h"

namespace engram::poolserver {
namespace {

// Why the node must end, once it must.
class ExitReason {
 public:
  void Set(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (why_.ok()) why_ = why;
  }
  absl::Status Get() {
    MutexLock lock(&mutex_);
    return why_;
  }

 private:
  Mutex mutex_;
  absl::Status why_;
};

std::string Describe(const PoolNode& node) {
  std::string out;
  for (const auto& store : node.tiers().stores()) absl::StrAppend(&out, ", ", store->Describe());
  for (const PathAddress& path : node.paths()) {
    absl::StrAppend(&out, ", ", std::string(Name(path.fabric)), " ", path.address);
  }
  return out;
}

// Until SIGTERM or SIGINT (0) or until the node must end (1).
int Wait(PoolNode& node, ExitReason& exit, const sigset_t& signals) {
  while (true) {
    timespec second{1, 0};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal > 0) {
      Log(absl::StrCat("stopping on ", signal == SIGINT ? "SIGINT" : "SIGTERM"));
      return 0;
    }
    if (const absl::Status why = exit.Get(); !why.ok()) {
      Log(absl::StrCat("ending: ", why.message()));
      return 1;
    }
    node.UpdateHealth();
  }
}

// Readers of earlier owners of the devices may hold leases: nothing is written before they end.
// -1: it may start; else the program's exit code.
int AwaitDevices(const PoolNodeOptions& options, const sigset_t& signals) {
  Duration wait{};
  for (const auto& device : options.targets.devices) {
    wait = std::max(wait, device->wait());
    Log(absl::StrCat(device->memory()->description().path, ": device ", device->uuid().Hex(), ", ",
                     device->found(),
                     device->wait() > Duration::zero()
                         ? absl::StrCat("; waits ", FormatDuration(device->wait()),
                                        " until no reader of its owner can hold a lease")
                         : ""));
  }
  const Instant end = SystemClock::Get().Now() + wait;
  while (SystemClock::Get().Now() < end) {
    timespec second{1, 0};
    if (sigtimedwait(&signals, nullptr, &second) > 0) return 0;
    for (const auto& device : options.targets.devices) {
      if (const absl::Status quiet = device->StillQuiet(); !quiet.ok()) {
        std::cerr << "engram-poolserver: --cxl-devices " << quiet.message() << "\n";
        return 1;
      }
    }
  }
  return -1;
}

// What the handler of SIGBUS says; a handler may compose nothing.
std::string& MemoryGone() {
  static std::string said;
  return said;
}

// Memory that was mapped cannot be reached any more: a device was unbound or failed under us. No
// byte of it can be served, so the process ends, and says so rather than dying silently.
void EndWithoutMemory(int) {
  const std::string& said = MemoryGone();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, said.data(), said.size());
  _exit(1);
}

void TellWhenMemoryGoes(const PoolNodeOptions& options) {
  std::string devices;
  for (const auto& device : options.targets.devices)
    absl::StrAppend(&devices, devices.empty() ? "" : ",", device->memory()->description().path);
  MemoryGone() = absl::StrCat(
      "engram-poolserver: mapped memory cannot be reached (SIGBUS): ",
      devices.empty() ? "a page of this machine failed"
                      : absl::StrCat("a device of --cxl-devices ", devices, " is gone or failed"),
      "; this node ends and readers take other replicas; see dmesg, then start it again\n");
  struct sigaction action {};
  action.sa_handler = EndWithoutMemory;
  sigaction(SIGBUS, &action, nullptr);
}

int Main(int argc, char** argv) {
  SetLogName("engram-poolserver");
  // gRPC logs every connection attempt by itself; what matters reaches the log as our own lines.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  // Blocked before any thread starts, so that only Wait sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto loaded = LoadSettingsOrExit(PoolServerProgram(), argc, argv, std::cout, std::cerr);
  if (std::holds_alternative<int>(loaded)) return std::get<int>(loaded);
  auto options = OptionsFrom(std::get<Settings>(loaded));
  if (!options.ok()) {
    std::cerr << "engram-poolserver: " << options.status().message() << "\n";
    return 2;
  }
  TellWhenMemoryGoes(*options);
  if (const int code = AwaitDevices(*options, signals); code >= 0) return code;
  ExitReason exit;
  auto node = PoolNode::Start(*options, [&exit](const absl::Status& why) { exit.Set(why); });
  if (!node.ok()) {
    std::cerr << "engram-poolserver: " << node.status().message() << "\n";
    return 1;
  }
  Log(absl::StrCat("node ", options->node.name, " serves at ", (*node)->endpoint(),
                   Describe(**node)));
  const int code = Wait(**node, exit, signals);
  (*node)->Stop();
  return code;
}

}  // namespace
}  // namespace engram::poolserver

int main(int argc, char** argv) { return engram::poolserver::Main(argc, argv); }
