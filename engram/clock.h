// Time as the pool sees it: nanoseconds of CLOCK_BOOTTIME, which goes on while a machine is
// suspended (a lease must run out for a client that slept). Every class that needs time takes a
// Clock, so the simulator and the unit tests can drive it.
#pragma once

#include <chrono>
#include <cstdint>

namespace engram {

using Duration = std::chrono::nanoseconds;

struct BootTime {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<BootTime>;
  static constexpr bool is_steady = true;
};
using Instant = BootTime::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

// CLOCK_BOOTTIME through the vDSO: no system call. Thread-safe.
class SystemClock final : public Clock {
 public:
  Instant Now() const override;
  static const SystemClock& Get();
};

// Moves only when told to. Thread-compatible.
class FakeClock final : public Clock {
 public:
  Instant Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }
  void Set(Instant now) { now_ = now; }

 private:
  Instant now_{std::chrono::seconds(1'000)};
};

}  // namespace engram
