// A Prefetcher that many threads may use. Who makes the reads go on is chosen once:
//   - the callers: a thread that waits serves everybody's steps meanwhile, one thread at a time,
//     the others sleep; nothing happens while nobody waits or polls;
//   - a poller: a thread of this object serves while anything is outstanding and sleeps otherwise,
//     so that late layers are hedged, and counted, while the engine computes.
// The serving thread holds the lock only between looks: another thread gets it at once. Layers,
// tickets and promises are those of Prefetcher. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/prefetcher.h"
#include "engram/mutex.h"

namespace engram::client {

class SharedPrefetcher {
 public:
  // What there is to say of a layer; `worst` and `failure` only of one that is not ready.
  struct Outcome {
    LayerState state = LayerState::kUnknown;
    bool late = false;
    WorstRow worst;
    ReadFailure failure;
  };

  // ResourceExhausted: no descriptor or no thread is to be had.
  static absl::StatusOr<std::unique_ptr<SharedPrefetcher>> Open(
      std::unique_ptr<Prefetcher> prefetcher, bool poller);
  ~SharedPrefetcher();  // REQUIRES: no other thread is inside. Ends what is outstanding.
  SharedPrefetcher(const SharedPrefetcher&) = delete;
  SharedPrefetcher& operator=(const SharedPrefetcher&) = delete;

  // OK, or why not (Prefetcher::refusal); *ticket is set when OK.
  absl::Status Submit(const Step& step, Ticket* ticket);
  absl::Status Submit(const TokenStep& step, Ticket* ticket);
  // One look at the outstanding reads, then the layer's state.
  LayerState Poll(Ticket ticket, std::uint32_t layer);
  bool PollAll(Ticket ticket);  // Prefetcher::Done
  bool Wait(Ticket ticket, std::uint32_t layer, Instant until);
  bool WaitAll(Ticket ticket, Instant until);
  void Cancel(Ticket ticket, std::uint32_t layer);
  void CancelAll(Ticket ticket);
  void Release(Ticket ticket);
  bool AllReady(Ticket ticket);  // there are layers, and every one is ready
  Outcome OutcomeOf(Ticket ticket, std::uint32_t layer);
  std::uint32_t layers(Ticket ticket);
  // look(const ReadPart&, bool pending) at the layer's rows (Prefetcher::Rows), if there is such a
  // layer. It must not call back, nor throw.
  template <class Look>
  void LookAt(Ticket ticket, std::uint32_t layer, Look look) {
    Lock();
    const ReadPart* rows = prefetcher_->Rows(ticket, layer);
    if (rows != nullptr) look(*rows, prefetcher_->State(ticket, layer) == LayerState::kPending);
    Unlock();
  }
  // As those of Prefetcher. Without a poller, hints are read while somebody waits or polls.
  std::uint64_t Hint(const ReadPart& rows);
  absl::Status Hint(const TokenSpan& tokens, std::uint64_t* taken);
  std::vector<HotNgram> Hottest(std::size_t most);
  bool has_cache();

 private:
  SharedPrefetcher(std::unique_ptr<Prefetcher> prefetcher, int wake_fd);
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_);
  void Unlock() ABSL_UNLOCK_FUNCTION(mutex_) { mutex_.Unlock(); }
  template <class AnyStep>
  absl::Status SubmitAny(const AnyStep& step, Ticket* ticket);
  template <class Ready>
  bool WaitFor(Ready ready, Instant until);
  template <class Ready>
  void Sleep(Ready ready, Instant until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <class Ready>
  void Serve(Ready ready, Instant until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Nap(Instant until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellSleepers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LetOthersIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeServer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const int wake_fd_;  // wakes the serving thread from its nap
  const Clock& clock_;
  const Duration spin_;
  Mutex mutex_;
  const std::unique_ptr<Prefetcher> prefetcher_ ABSL_PT_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool napping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t seen_events_ ABSL_GUARDED_BY(mutex_) = 0;  // that sleepers were told of
  std::uint32_t sleepers_ ABSL_GUARDED_BY(mutex_) = 0;
  Instant next_sleeper_ ABSL_GUARDED_BY(mutex_) =
      Instant::max();                      // when one gives up at the latest
  std::atomic<std::uint32_t> unseen_{0};   // sleepers that have not looked since
  std::atomic<std::uint32_t> wanting_{0};  // threads that want the lock
  bool has_poller_ = false;
  std::thread poller_;
};

}  // namespace engram::client
