// A bound on bytes per second that several users share: a leaky bucket with a short memory, so that
// a pause does not turn into a burst. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"

namespace engram::poolserver {

// How long `bytes` take at that rate.
inline Duration TimeFor(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  return Duration(static_cast<Duration::rep>(1e9 * static_cast<double>(bytes) /
                                             static_cast<double>(bytes_per_second)));
}

class RateLimit {
 public:
  // 0: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // True when `bytes` may move now: they are taken into account.
  bool Take(Instant now, std::uint64_t bytes) {
    if (bytes_per_second_ == 0) return true;
    MutexLock lock(&mutex_);
    if (next_ > now) return false;
    next_ = std::max(next_, now - kMemory) + TimeFor(bytes, bytes_per_second_);
    return true;
  }

 private:
  static constexpr Duration kMemory = std::chrono::milliseconds(20);

  const std::uint64_t bytes_per_second_;
  Mutex mutex_;
  Instant next_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace engram::poolserver
