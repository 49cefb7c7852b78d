// One WatchMap stream: follows the history from an epoch, with a snapshot where that is too far
// back. Kept alive by the PoolService until OnDone. Thread-safe.
#pragma once

#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "placement/rpc/pool_service.h"

namespace engram::placement {

class MapWatcher final : public grpc::ServerWriteReactor<v1::WatchMapResponse> {
 public:
  // An authenticated client sees the tables that its tenant may read.
  MapWatcher(PoolService* service, ControllerLoop* loop, Epoch from, std::optional<Identity> caller)
      : service_(service), loop_(loop), caller_(std::move(caller)), epoch_(from) {}

  const std::optional<Identity>& caller() const { return caller_; }

  // There may be something to send.
  void Advance();
  void Close(grpc::Status status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Close(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(this); }

 private:
  // Queues the delta, less what the caller may not see.
  void Queue(const ClusterState& state, MapDelta delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PoolService* const service_;
  ControllerLoop* const loop_;
  const std::optional<Identity> caller_;
  Mutex mutex_;
  v1::WatchMapResponse piece_;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_);  // of the map that the pieces sent and queued lead to
  std::deque<v1::WatchMapResponse> pieces_ ABSL_GUARDED_BY(mutex_);
  // What the tenant was granted when the last pieces were queued.
  std::optional<std::vector<std::string>> granted_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> closing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
