// The one mutex of the project: std::mutex with clang's thread annotations and waiting for a
// condition. (Debian's abseil is not instrumented for the thread sanitizer, so absl::Mutex would
// make every run of it report races that are not there.)
//
//   MutexLock lock(&mutex_);
//   mutex_.Await([this] { return stopping_ || !queue_.empty(); });
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"

namespace engram {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  // Wakes those who await a condition: they look again.
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    const bool awaited = waiters_ > 0;
    mutex_.unlock();
    if (awaited) changed_.notify_all();
  }
  // Tells the analysis that the caller holds the lock.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

  // Waits until ready() is true. `ready` runs under the lock and reads only what the lock guards.
  template <class Ready>
  void Await(Ready ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    ++waiters_;
    changed_.wait(lock, ready);
    --waiters_;
    lock.release();
  }
  // The same for at most `time`; returns ready() as it was at the end.
  template <class Ready>
  bool AwaitFor(Duration time, Ready ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    ++waiters_;
    const bool is_ready = changed_.wait_for(lock, std::min(time, kLongestWait), ready);
    --waiters_;
    lock.release();
    return is_ready;
  }

 private:
  // Longer ones would overflow the clock; callers loop.
  static constexpr Duration kLongestWait = std::chrono::hours(24);

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiters_ = 0;  // guarded by mutex_
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace engram
