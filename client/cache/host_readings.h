// Which units of one set of a host cache are being read from the pool now, by whom and since when:
// what one process reads, the others of the host need not. A step takes a unit over from a bulk
// reader, and anybody from one that has not come back for 100 ms (it was killed, or stands still).
//
// It asks others to wait a moment, no more: it protects nothing, and two that ask in the same
// nanoseconds may both read. Lives in memory that several
// processes change at once, without a lock; zeros at first. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/cache/row_cache.h"
#include "engram/clock.h"

namespace engram::client {

struct HostReadings {
  static constexpr std::uint32_t kMost = 8;
  static constexpr Duration kForgetAfter = std::chrono::milliseconds(100);

  // Who asks: the owner number of an opening of the segment.
  struct Reader {
    std::uint32_t owner = 0;
    CacheUse use = CacheUse::kStep;
    Instant now;
  };
  // True: the caller reads the unit, until End or for as long as kForgetAfter; false: another owner
  // does. With kMost others under way it is true, and nobody hears of it. REQUIRES: tag != 0.
  bool Begin(std::uint32_t tag, const Reader& reader);
  void End(std::uint32_t tag, std::uint32_t owner);

  std::atomic<std::uint64_t> words[kMost];  // 0: none
};
static_assert(sizeof(HostReadings) == 64);

}  // namespace engram::client
