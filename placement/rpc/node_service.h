// The Join streams of pool nodes: a thin adapter between gRPC and the ControllerLoop. A stream
// posts its next message when the loop has handled the last one, so that a node cannot flood it;
// what the loop sends is queued, at most kMaxQueued messages. Thread-safe.
#pragma once

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/v1/placement.grpc.pb.h"
#include "placement/ops/controller_loop.h"

namespace engram::placement {

class JoinReactor;

class NodeService final : public v1::NodeService::CallbackService {
 public:
  static constexpr std::size_t kMaxQueued = 4096;

  // `loop` must outlive the service.
  explicit NodeService(ControllerLoop* loop) : loop_(loop) {}

  grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse>* Join(
      grpc::CallbackServerContext* context) override;

  // Outlets of the loop. Unknown links are ignored: they have ended.
  void Send(LinkId link, const ControllerToNode& message);
  void Close(LinkId link, const absl::Status& why);
  // Ends every stream, so that the server can stop.
  void CloseAll();
  // Ends those there are: this controller leads no more.
  void EndAll(const absl::Status& why);

 private:
  friend class JoinReactor;
  std::shared_ptr<JoinReactor> Find(LinkId link);
  void Forget(LinkId link);

  ControllerLoop* const loop_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<LinkId, std::shared_ptr<JoinReactor>> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
