#include "engram/clock.h"

#include <time.h>

namespace engram {

Instant SystemClock::Now() const {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Instant(std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec));
}

const SystemClock& SystemClock::Get() {
  static const SystemClock clock;
  return clock;
}

}  // namespace engram
