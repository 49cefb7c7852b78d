// What the C ABI's source files share: the handles, the last error, and the frame in which every
// function runs. Thread-safe.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/abi/arguments.h"
#include "client/rpc/pool.h"
#include "engram/clock.h"

struct engram_pool {
  std::unique_ptr<engram::client::Pool> pool;
  std::uint64_t generation = 0;
};

struct engram_table {
  std::unique_ptr<engram::client::Table> table;
  std::uint64_t generation = 0;
  engram::client::abi::TableShape shape;
  std::string uid;
  std::vector<std::string> dtypes;  // of the planes
};

namespace engram::client::abi {

extern const char kHowToFork[];

// Counts forks: a handle of another generation is the parent's.
std::uint64_t Generation();
// InvalidArgument: null; FailedPrecondition: made before this process was forked.
absl::Status CheckHandle(const char* what, const void* handle, std::uint64_t made);
absl::Status Check(const engram_pool* pool);
absl::Status Check(const engram_table* table);

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

}  // namespace engram::client::abi
