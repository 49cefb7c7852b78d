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
  MapWatcher(PoolService* service, ControllerLoop* loop, Epoch from)
      : service_(service), loop_(loop), epoch_(from) {}

  // There may be something to send.
  void Advance();
  void Close(grpc::Status status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Close(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(this); }

 private:
  void Refill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PoolService* const service_;
  ControllerLoop* const loop_;
  Mutex mutex_;
  v1::WatchMapResponse piece_;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_);  // of the map that the pieces sent and queued lead to
  std::deque<v1::WatchMapResponse> pieces_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> closing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
