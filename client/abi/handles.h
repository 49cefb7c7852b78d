// What the C ABI's source files share: the handles, the last error, and the frames in which every
// function runs. Thread-safe.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/abi/arguments.h"
#include "client/abi/destinations.h"
#include "client/rpc/pool.h"
#include "engram/clock.h"

namespace engram::client::abi {

// Counts forks: a handle of another generation is the parent's.
std::uint64_t Generation();

// What every handle starts with. A handle names itself: kName.
struct Handle {
  const std::uint64_t generation = Generation();
};

// InvalidArgument: null; FailedPrecondition: made before this process was forked.
absl::Status CheckHandle(const char* name, const Handle* handle);
template <class Opaque>
absl::Status Check(const Opaque* handle) {
  return CheckHandle(Opaque::kName, handle);
}

// 0: a second from now.
Instant DeadlineOf(std::uint64_t timeout_ns);

void ClearError();
// Keeps the message for engram_last_error.
engram_status Finish(const absl::Status& status);

// Runs `body` (-> absl::Status); no exception leaves.
template <class Body>
engram_status Guard(Body body) {
  try {
    ClearError();
    return Finish(body());
  } catch (const std::bad_alloc&) {
    return Finish(absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return Finish(absl::InternalError(absl::StrCat("unexpected exception: ", error.what())));
  } catch (...) {
    return Finish(absl::InternalError("unexpected exception"));
  }
}

// Guard, after the handle was checked: a call of it.
template <class Opaque, class Body>
engram_status Call(const Opaque* handle, Body body) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(handle); !status.ok()) return status;
    return body();
  });
}

// *out = what `make` (-> absl::StatusOr<std::unique_ptr<Opaque>>) made, or null.
template <class Opaque, class Make>
engram_status Open(Opaque** out, Make make) {
  return Guard([&]() -> absl::Status {
    if (out == nullptr) return absl::InvalidArgumentError(absl::StrCat(Opaque::kName, " is NULL"));
    *out = nullptr;
    absl::StatusOr<std::unique_ptr<Opaque>> made = make();
    if (!made.ok()) return made.status();
    *out = made->release();
    return absl::OkStatus();
  });
}

template <class Opaque>
void Close(Opaque* handle) {
  // A forked child has none of the threads that closing would wait for.
  if (handle == nullptr || !Check(handle).ok()) return;
  Guard([&]() -> absl::Status {
    delete handle;
    return absl::OkStatus();
  });
}

template <class Options>
void Init(Options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

// Before the first pool of the process opens, and each time after: FailedPrecondition in a child
// that was forked while its parent had a pool in use.
absl::Status CheckForks();
// What engram_set_log set.
void Log(int level, const std::string& message);

// A table is among those that engram_metrics reports from Begin to its end (metrics.cc).
class Counted {
 public:
  explicit Counted(const engram_table* table);
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  void Begin();

 private:
  const engram_table* const table_;
};

// Call on the steps of a prefetcher and its table (steps.cc).
using StepsBody = std::function<absl::Status(SharedPrefetcher& steps, engram_table& table)>;
engram_status CallSteps(engram_prefetcher* prefetcher, const StepsBody& body);

}  // namespace engram::client::abi

struct engram_pool : engram::client::abi::Handle {
  static constexpr const char* kName = "pool";
  std::unique_ptr<engram::client::Pool> pool;
  std::string endpoints;  // of the controllers, with commas
};

struct engram_table : engram::client::abi::Handle {
  static constexpr const char* kName = "table";
  engram_pool* pool = nullptr;
  std::unique_ptr<engram::client::Table> table;
  engram::client::abi::TableShape shape;
  std::string uid;
  std::vector<std::string> dtypes;                 // of the planes
  engram::client::abi::Destinations destinations;  // goes before the table
  engram::client::abi::Counted counted{this};      // first to go
};
