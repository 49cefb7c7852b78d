// One thread that handles events in the order in which they were posted and wakes for the next
// timer: where the state machines of the client live. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"

namespace engram::client {

class DutyLoop {
 public:
  DutyLoop() = default;
  ~DutyLoop();  // = Stop()
  DutyLoop(const DutyLoop&) = delete;
  DutyLoop& operator=(const DutyLoop&) = delete;

  // `tick` runs on the loop's thread after every event and at the time it last returned.
  void Start(std::function<std::optional<Instant>(Instant now)> tick);
  // Dropped, and false, after Stop.
  bool Post(std::function<void()> event);
  // Posts and waits until it was handled; false when the loop is stopped. REQUIRES: not while Stop
  // runs, not on the loop's thread.
  bool Do(const std::function<void()>& event);
  // Drops what is queued, lets the running event end, joins. Idempotent.
  void Stop();

 private:
  void Run();

  std::function<std::optional<Instant>(Instant)> tick_;
  Mutex mutex_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace engram::client
