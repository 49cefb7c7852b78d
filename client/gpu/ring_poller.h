// A thread that serves a RingService and, through it, its StepReads: neither is used by anybody
// else meanwhile. A GPU cannot wake a thread, so the thread looks: all the time while steps are
// being read and for `spin` after the last one, then every `nap`. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "client/gpu/ring_service.h"

namespace engram::client::gpu {

class RingPoller {
 public:
  struct Options {
    Duration spin = Duration::max();  // max: never naps; costs one core
    Duration nap = std::chrono::microseconds(20);
  };
  // `service` outlives the poller. ResourceExhausted: no thread is to be had.
  static absl::StatusOr<std::unique_ptr<RingPoller>> Start(RingService* service,
                                                           const Options& options);
  ~RingPoller() { Stop(); }
  RingPoller(const RingPoller&) = delete;
  RingPoller& operator=(const RingPoller&) = delete;

  // Returns when the thread has ended, with the service closed. Idempotent.
  void Stop();

 private:
  RingPoller(RingService* service, const Options& options)
      : service_(*service), options_(options) {}
  void Run();

  RingService& service_;
  const Options options_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace engram::client::gpu
