// Until when the grants of one read session are valid, by this client's clock (ARCHITECTURE section
// 4, rules 2 and 4). One object per opened session, never reused for the next one: a batch keeps
// the lease it was started under, so a session opened later can never vouch for it.
//
// A reader asks ValidAt(clock.Now()) *after* the last completion of the batch has been polled, with
// the clock read after it; only then may the batch be delivered. Thread-safe.
#pragma once

#include <atomic>

#include "engram/clock.h"

namespace engram::client {

class ReadLease {
 public:
  explicit ReadLease(Instant until) : until_ns_(until.time_since_epoch().count()) {}

  Instant until() const { return Instant(Duration(until_ns_.load(std::memory_order_acquire))); }
  bool ValidAt(Instant now) const { return now < until(); }

  // Called by the session only; never shortens. A lease is counted from when its request was sent.
  void Extend(Instant until) {
    const Duration::rep ns = until.time_since_epoch().count();
    if (ns > until_ns_.load(std::memory_order_relaxed)) {
      until_ns_.store(ns, std::memory_order_release);
    }
  }

 private:
  std::atomic<Duration::rep> until_ns_;
};

}  // namespace engram::client
