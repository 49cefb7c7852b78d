// One WatchMap subscription: hands whole deltas to the client's loop. It decides nothing:
// MapFollower does. Never destroyed on a thread of gRPC's. Thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "absl/synchronization/notification.h"
#include "client/rpc/duty_loop.h"
#include "engram/shard_map.h"
#include "engram/v1/placement.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/convert.h"

namespace engram::client {

class MapStream final : public grpc::ClientReadReactor<v1::WatchMapResponse>,
                        public std::enable_shared_from_this<MapStream> {
 public:
  struct Outlets {  // called on the loop's thread
    std::function<void(MapDelta)> delta;
    std::function<void(absl::Status)> lost;  // last
  };
  static std::shared_ptr<MapStream> Open(std::shared_ptr<DutyLoop> loop,
                                         std::shared_ptr<grpc::Channel> channel,
                                         const v1::WatchMapRequest& request, Outlets outlets);
  void Cancel() { call_.TryCancel(); }
  // As in SessionStream.
  bool WaitDone(Duration timeout);
  bool IsDone() const { return done_.HasBeenNotified(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  MapStream(std::shared_ptr<DutyLoop> loop, const v1::WatchMapRequest& request, Outlets outlets);

  const std::shared_ptr<DutyLoop> loop_;
  const v1::WatchMapRequest request_;
  const Outlets outlets_;
  std::unique_ptr<v1::PoolService::Stub> stub_;
  grpc::ClientContext call_;
  v1::WatchMapResponse in_;
  wire::MapDeltaAssembler assembler_;
  absl::Status why_;
  absl::Notification done_;
  std::shared_ptr<MapStream> self_;  // until the loop has heard of the end
};

}  // namespace engram::client
