// The thread that serves: accepts, reads requests, gathers, replies. Urgent requests are answered
// as they come; bulk ones in slices of kBulkSliceRows, with a look at the sockets between slices.
//
// Spins for WaitMode::spin after the last work, then blocks. While it spins it receives directly
// from the connections that were busy last, so a message costs one receive and one send.
//
// Thread-safe: Adopt, Wake, Stop and counters. Everything else runs on its own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"
#include "fabric/stream/grants.h"
#include "fabric/stream/peer_connection.h"
#include "fabric/stream/socket.h"
#include "fabric/stream/throttle.h"

namespace engram::fabric::stream {

inline constexpr std::uint32_t kBulkSliceRows = 192;

struct PollerOptions {
  Incarnation incarnation;
  WaitMode wait;
  StallLimits limits;
  std::uint32_t max_connections = 4096;
};

struct LaneCounters {
  std::uint64_t rows = 0;
  std::uint64_t messages = 0;
};

class Poller {
 public:
  // `listener` is -1 for pollers that only adopt. `route` tells which poller serves a session.
  Poller(const PollerOptions& options, Grants* grants, Throttle* throttle, Descriptor listener,
         std::function<Poller*(const SessionToken&)> route);
  ~Poller();
  void Start();

  // Takes over a connection whose hello was answered.
  void Adopt(std::unique_ptr<PeerConnection> connection);
  // What hellos are compared with from now on.
  void SetIncarnation(Incarnation incarnation) { incarnation_.store(incarnation.value()); }
  // Makes the poller look for dismissed sessions.
  void Wake();
  // Closes every connection and joins. Idempotent.
  void Stop();

  LaneCounters counters(Lane lane) const;

 private:
  static constexpr std::size_t kMaxHot = 4;
  // While spinning, looks at the other sockets once in this many turns.
  static constexpr std::uint32_t kTurnsPerLook = 16;

  void Run();
  bool LookAtSockets(int timeout_ms);
  bool Serve(PeerConnection* connection, std::uint32_t events);
  int BlockTimeout();
  void AcceptAll();
  void Watch(PeerConnection* connection, std::uint32_t interest);
  void TakeInbox();

  bool ReadFrom(PeerConnection* connection);
  void ParseFrom(PeerConnection* connection);
  bool TakeHello(PeerConnection* connection);
  void Welcome(PeerConnection* connection, HelloResult result);
  void Accept(PeerConnection* connection, const RequestView& view);
  // False: the job waits for its tenant's budget, and comes back through Resumed.
  bool MayGather(Job* job);
  void ServeUrgent(Job* job);
  void ServeBulkSlice();
  void EnqueueBulk(PeerConnection* connection);
  void FinishJob(Job* job);
  void Resumed(Job* job);
  void FlushTo(PeerConnection* connection);
  void Refill(PeerConnection* connection);
  void SetDeadlines(PeerConnection* connection);

  void MakeHot(PeerConnection* connection);
  void CloseConnection(PeerConnection* connection);
  void DropStalled();
  void SweepClosed();
  Job* TakeJob(PeerConnection* connection);
  void ReturnJob(Job* job);

  const PollerOptions options_;
  std::atomic<std::uint64_t> incarnation_{options_.incarnation.value()};
  Grants* const grants_;
  Throttle* const throttle_;
  const std::function<Poller*(const SessionToken&)> route_;
  const SystemClock clock_{};
  Descriptor listener_;
  Descriptor epoll_;
  Descriptor wake_;
  std::thread thread_;
  std::atomic<bool> stop_{false};

  std::list<std::unique_ptr<PeerConnection>> connections_;
  std::vector<PeerConnection*> hot_;
  std::vector<PeerConnection*> bulk_;  // round of connections with waiting jobs
  std::vector<std::unique_ptr<Job>> all_jobs_;
  std::vector<Job*> free_jobs_;  // last in, first out: the warm buffer is used again
  std::vector<Job*> sent_;
  std::uint32_t asynchronous_ = 0;  // jobs at a source, or waiting for a budget
  bool any_closed_ = false;
  std::uint32_t turns_ = 0;
  Instant last_stall_check_{};
  std::atomic<std::uint64_t> rows_[2] = {};
  std::atomic<std::uint64_t> messages_[2] = {};

  Mutex inbox_mutex_;
  std::vector<std::unique_ptr<PeerConnection>> inbox_connections_ ABSL_GUARDED_BY(inbox_mutex_);
  std::vector<Job*> inbox_jobs_ ABSL_GUARDED_BY(inbox_mutex_);
  std::atomic<bool> inbox_filled_{false};
};

}  // namespace engram::fabric::stream
