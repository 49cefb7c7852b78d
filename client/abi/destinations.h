// The destinations that callers registered with one table, by number. A step or slot that uses one
// keeps it (a shared pointer), and it cannot be unregistered meanwhile. Knows no gRPC.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/destination.h"
#include "engram/mutex.h"

namespace engram::client::abi {

struct Registered {
  std::uint64_t number = 0;
  std::unique_ptr<Destination> destination;
};

class Destinations {
 public:
  // InvalidArgument: null, empty, unaligned, not mapped, not writable.
  static absl::Status Check(void* memory, std::size_t bytes);
  // Returns the number. InvalidArgument: it overlaps one that is registered.
  absl::StatusOr<std::uint64_t> Add(std::unique_ptr<Destination> destination);
  // FailedPrecondition: in use (it stays), or its memory is not mapped any more (it goes).
  absl::Status Remove(std::uint64_t number);
  // InvalidArgument: no destination has that number (any more).
  absl::StatusOr<std::shared_ptr<Registered>> Find(std::uint64_t number) const;
  // InvalidArgument unless [out, out + bytes) lies in it.
  static absl::Status Covers(const Registered& registered, const void* out, std::size_t bytes);

 private:
  absl::Status Unknown(std::uint64_t number) const;

  mutable Mutex mutex_;
  std::uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<Registered>> registered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::client::abi
