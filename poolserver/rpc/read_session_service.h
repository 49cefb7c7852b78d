// Read sessions over gRPC: turns streams into events of the node's loop and its answers into
// messages. It decides nothing: NodeState does. A client that is slow, silent or dead costs its own
// bounded queue and then its own stream, never the loop. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/session.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "poolserver/node_loop.h"

namespace engram::poolserver {

class SessionStream;

class ReadSessionService final : public v1::ReadSessionService::CallbackService {
 public:
  struct Identity {
    NodeId node;
    std::string version;
  };
  explicit ReadSessionService(Identity identity);
  ~ReadSessionService() override;

  // Calls are refused with Unavailable before Serve and after Detach. REQUIRES: both pointers
  // outlive the service or Detach is called.
  void Serve(NodeLoop* loop, const Tiers* tiers, Exposure* exposure);
  // Returns when no call uses the loop any more.
  void Detach();

  // What NodeOutlets need.
  void Send(StreamId stream, const NodeMessage& message);
  void Close(StreamId stream);

  grpc::ServerBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse>* ReadSession(
      grpc::CallbackServerContext* call) override;
  grpc::ServerUnaryReactor* GetNodeStatus(grpc::CallbackServerContext* call,
                                          const v1::GetNodeStatusRequest* request,
                                          v1::GetNodeStatusResponse* response) override;

 private:
  friend class SessionStream;
  void Heard(StreamId stream, ClientMessage message, std::function<void()> handled);
  void Ended(StreamId stream);
  std::shared_ptr<SessionStream> Find(StreamId stream);

  const Identity identity_;
  Mutex mutex_;
  NodeLoop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  const Tiers* tiers_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Exposure* exposure_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<StreamId, std::shared_ptr<SessionStream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::poolserver
