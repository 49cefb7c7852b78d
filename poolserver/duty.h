// One thread that does jobs in the order in which they were given, for work that must not hold up
// the node's event loop: registering memory, looking at a table's source. It stands behind the
// threads that serve reads where processors are short. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"

namespace engram::poolserver {

// The calling thread gives way to threads of ordinary priority from now on: loading, pulling and
// scrubbing are late before a read is.
void StandBehindReads();

class Duty {
 public:
  // `name` is the thread's, at most 15 characters.
  explicit Duty(const std::string& name);
  ~Duty();  // = Stop()

  // Dropped after Stop.
  void Do(std::function<void()> job);
  // Lets the running job end, drops the others, joins. Idempotent.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace engram::poolserver
