// The thread that takes part in an election: asks and writes the store for it, and tells the
// LeaderLease what came of it. It has a store of its own, so that a lease is renewed while the
// controller waits for its. No gRPC in it. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "placement/ops/election.h"
#include "placement/ops/leader_lease.h"

namespace engram::placement {

class ElectionLoop {
 public:
  // `lease` and `clock` must outlive the loop. `say` gets a line where the leader changes or the
  // store cannot be asked; on the loop's thread.
  ElectionLoop(std::unique_ptr<StateStore> store, Election::Options options, LeaderLease* lease,
               const Clock* clock, std::function<void(const std::string&)> say);
  ~ElectionLoop();  // = Stop()
  void Start();
  // Gives the lease up, if the store answers, and ends the thread. The caller has stopped acting.
  // Idempotent.
  void Stop();

 private:
  void Run();
  void Feed(const Election::Event& event);
  void Do(Election::ReadRecord& action);
  void Do(Election::WriteRecord& action);
  void Do(Election::Lead& action);
  void Do(Election::Follow& action);
  void Heard(const absl::Status& status);

  const std::unique_ptr<StateStore> store_;
  const Election::Options options_;
  Election election_;
  LeaderLease* const lease_;
  const Clock* const clock_;
  const std::function<void(const std::string&)> say_;
  bool led_ = false;
  bool silent_ = false;  // the store did not answer
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace engram::placement
