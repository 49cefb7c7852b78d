// Whether this controller may act, as its election has it: until when its lease runs, and who leads
// otherwise. The election writes it; the controller's loop and its services read it, and none of
// them acts after the lease has run out, whether the election has noticed or not. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"

namespace engram::placement {

class LeaderLease {
 public:
  void Hold(Instant until) {
    MutexLock lock(&mutex_);
    until_ = until;
  }
  // `leader`: its address, or empty while it is not known.
  void Lose(std::string leader) {
    MutexLock lock(&mutex_);
    until_ = Instant();
    leader_ = std::move(leader);
  }
  bool Held(Instant now) const {
    MutexLock lock(&mutex_);
    return now < until_;
  }
  std::string leader() const {
    MutexLock lock(&mutex_);
    return leader_;
  }

 private:
  mutable Mutex mutex_;
  Instant until_ ABSL_GUARDED_BY(mutex_){};
  std::string leader_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
