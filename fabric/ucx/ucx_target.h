// The owner's side of UCX: exposed memory, and a thread that lets UCX work.
//
// Where the NIC serves reads (rc, dc) memory is registered with it, and sessions are asked for at a
// connection's hello and at each import; a read itself is not looked at: whoever was told a key can
// use it until Hide. Elsewhere the thread answers reads, and looks at session, key and range of
// each. Each start has a new worker address. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/session_keys.h"
#include "fabric/target.h"
#include "fabric/ucx/reception.h"
#include "fabric/ucx/transport.h"

namespace engram::fabric::ucx {

struct UcxTargetOptions {
  TransportOptions transport = {};
  Incarnation incarnation = {};
  // The thread spins so long after the last event before it sleeps.
  WaitMode wait = {};
};

class UcxTarget final : public Target, private Directory {
 public:
  static absl::StatusOr<std::unique_ptr<UcxTarget>> Open(const UcxTargetOptions& options);
  ~UcxTarget() override;

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override;
  // Changes the address: it carries the incarnation.
  void SetIncarnation(Incarnation incarnation) override;
  // A UCX context and worker of its own, and a thread.
  absl::StatusOr<std::unique_ptr<Target>> OpenDomain() const override;
  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override;
  void Hide(std::uint64_t key) override;
  void Admit(const SessionToken& session) override;
  void Dismiss(const SessionToken& session) override;
  void Allow(const SessionToken& session, std::uint64_t key) override;
  void Disallow(const SessionToken& session, std::uint64_t key) override;
  void Stop() override;

 private:
  struct Region {
    ExposedRegion at;
    const std::byte* first = nullptr;
    std::vector<std::byte> packed_key;  // of a registered one
    MemoryHandle memory;
  };

  UcxTarget() = default;
  Outcome Judge(const Ask& hello) override;
  Received<Answer> Find(const Ask& import) override;
  std::vector<std::byte> Read(const Ask& read, std::span<const Range> ranges) override;
  // Null: the session may not read it.
  const std::byte* MemoryOf(const SessionToken& session, const Range& range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve();
  // Of the thread: sees off the sessions that were dismissed. False: none.
  bool SeeOffDismissed();

  UcxTargetOptions options_;  // less the incarnation
  std::shared_ptr<const Transport> transport_;
  FabricInfo info_;
  WaitMode wait_;
  std::unique_ptr<Reception> reception_;  // the thread's
  TargetLocation::Kind address_kind_ = TargetLocation::Kind::kSocket;
  std::vector<std::byte> address_;

  mutable Mutex mutex_;
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_);
  SystemRandom random_ ABSL_GUARDED_BY(mutex_);
  SessionKeys sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<SessionToken> dismissed_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace engram::fabric::ucx
