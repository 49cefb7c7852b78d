// What the C ABI has once a process: its name and statuses, the last error of each thread, the log,
// and what it knows of forks.
#include <grpc/grpc.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/abi/handles.h"
#include "engram/mutex.h"

namespace engram::client::abi {
namespace {

thread_local std::string last_error;

// On the child's side of a fork. Handles of the parent are of an older generation.
std::atomic<std::uint64_t> generation{0};
// A child that is forked while gRPC runs has gRPC's state without gRPC's threads: a call of its own
// would wait for ever. gRPC runs from the first pool that opens to some time after the last closed.
thread_local bool runs_at_fork = false;
std::atomic<bool> forked_in_use{false};

constexpr char kHowToFork[] =
    "open pools after the last fork, or start the process anew (spawn) instead of forking it";

void WatchForks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { runs_at_fork = grpc_is_initialized() != 0; }, nullptr,
                   [] {
                     generation.fetch_add(1);
                     if (runs_at_fork) forked_in_use.store(true);
                   });
  });
}

struct LogSink {
  Mutex mutex;
  engram_log_fn log ABSL_GUARDED_BY(mutex) = nullptr;
  void* user ABSL_GUARDED_BY(mutex) = nullptr;
};
LogSink& Sink() {
  static auto* const sink = new LogSink();  // never destroyed: threads may outlive main's statics
  return *sink;
}

}  // namespace

std::uint64_t Generation() { return generation.load(std::memory_order_relaxed); }

absl::Status CheckForks() {
  WatchForks();
  if (!forked_in_use.load()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this process was forked while its parent had a pool in use: ", kHowToFork));
}

absl::Status CheckHandle(const char* name, const Handle* handle) {
  if (handle == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
  if (handle->generation != Generation())
    return absl::FailedPreconditionError(
        absl::StrCat(name, " belongs to the parent of this forked process: ", kHowToFork));
  return absl::OkStatus();
}

// The lock is held over the call, which may not come back here: when engram_set_log returns, nobody
// uses what was set before.
void Log(int level, const std::string& message) {
  LogSink& sink = Sink();
  MutexLock lock(&sink.mutex);
  if (sink.log != nullptr) sink.log(level, message.c_str(), sink.user);
}

void ClearError() { last_error.clear(); }

engram_status Finish(const absl::Status& status) {
  if (!status.ok()) last_error = std::string(status.message());
  return StatusOf(status);
}

Instant DeadlineOf(std::uint64_t timeout_ns) {
  if (timeout_ns == 0) timeout_ns = 1'000'000'000;
  return SystemClock::Get().Now() +
         Duration(static_cast<std::int64_t>(std::min(timeout_ns, kMaxTimeoutNs)));
}

}  // namespace engram::client::abi

namespace args = engram::client::abi;

extern "C" {

const char* engram_version(void) { return ENGRAM_VERSION; }

const char* engram_status_name(engram_status status) {
  static constexpr const char* kNames[] = {"ok",
                                           "invalid_argument",
                                           "not_found",
                                           "failed_precondition",
                                           "unavailable",
                                           "deadline_exceeded",
                                           "data_loss",
                                           "resource_exhausted",
                                           "permission_denied",
                                           "internal"};
  // From C the parameter may hold any number: it is not read as an enumerator before that is known.
  unsigned index;
  static_assert(sizeof index == sizeof status);
  std::memcpy(&index, &status, sizeof index);
  return index < sizeof kNames / sizeof kNames[0] ? kNames[index] : "unknown";
}

const char* engram_last_error(void) { return args::last_error.c_str(); }

void engram_set_log(engram_log_fn log, void* user) {
  args::LogSink& sink = args::Sink();
  engram::MutexLock lock(&sink.mutex);
  sink.log = log;
  sink.user = user;
}

}  // extern "C"
