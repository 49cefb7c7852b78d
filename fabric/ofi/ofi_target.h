// The owner's side of libfabric one-sided reads: registered memory, and a thread that drives the
// provider. Everywhere but on RDMA hardware it answers the reads; there it only lets new readers
// connect and looks at connections that end, and reads go on when it stands still.
//
// Keys are bearer tokens: whoever knows a key and the address can read, so sessions are not checked
// here and Hide is the only revocation. Each start has a new endpoint address. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/ofi/provider.h"
#include "fabric/target.h"

namespace engram::fabric::ofi {

struct OfiTargetOptions {
  ProviderOptions provider = {};
  Incarnation incarnation = {};
  // Duration::max(): the progress thread spins; else it blocks in the provider, or naps where the
  // provider cannot block.
  WaitMode wait = {};
};

class OfiTarget final : public Target {
 public:
  static absl::StatusOr<std::unique_ptr<OfiTarget>> Open(const OfiTargetOptions& options);
  ~OfiTarget() override;

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override;
  // Changes the address: it carries the incarnation.
  void SetIncarnation(Incarnation incarnation) override;
  // A libfabric fabric, domain and endpoint of its own, and a thread that drives it.
  absl::StatusOr<std::unique_ptr<Target>> OpenDomain() const override;
  bool Moved() const override;
  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override;
  void Hide(std::uint64_t key) override;
  void Admit(const SessionToken&) override {}
  void Dismiss(const SessionToken&) override {}
  void Allow(const SessionToken&, std::uint64_t) override {}
  void Disallow(const SessionToken&, std::uint64_t) override {}
  void Stop() override;

 private:
  OfiTarget() = default;
  void Progress();

  OfiTargetOptions options_;  // the incarnation is that of the location
  std::shared_ptr<Provider> provider_;
  FabricInfo info_;
  WaitMode wait_;
  bool can_block_ = false;
  alignas(64) HelloRegion hello_;
  Registration hello_registration_;
  Endpoint endpoint_;
  Binding bound_;  // what the endpoint was made on
  mutable Mutex mutex_;
  TargetLocation location_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Registration> regions_ ABSL_GUARDED_BY(mutex_);
  // Turns of the progress thread: a read that was being answered when Hide deregistered is over two
  // turns later.
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace engram::fabric::ofi
