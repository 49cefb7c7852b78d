// One read session's gRPC stream: carries messages both ways between a node and the client's loop.
// It decides nothing: ClientSession does. It is destroyed on the loop or by who drops it last,
// never on a thread of gRPC's. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "client/rpc/duty_loop.h"
#include "engram/mutex.h"
#include "engram/session.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace engram::client {

class SessionStream final
    : public grpc::ClientBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse>,
      public std::enable_shared_from_this<SessionStream> {
 public:
  struct Outlets {  // called on the loop's thread
    std::function<void(NodeMessage)> heard;
    std::function<void(absl::Status)> lost;  // last
  };
  // Connects `channel`, which leads to `endpoint`; what is said before the connection stands is
  // sent then.
  static std::shared_ptr<SessionStream> Open(std::shared_ptr<DutyLoop> loop,
                                             const std::string& endpoint,
                                             const std::shared_ptr<grpc::Channel>& channel,
                                             Outlets outlets);

  // A node that does not read costs its own stream.
  void Send(const ClientMessage& message);
  // Ends the stream after everything that was said before it.
  void Close();
  // Ends it now.
  void Cancel() { call_.TryCancel(); }
  // Waits until gRPC and the loop are done with the stream; false when they are not in time.
  // REQUIRES: the loop runs; not on its thread.
  bool WaitDone(Duration timeout);
  bool IsDone() const { return done_.HasBeenNotified(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  SessionStream(std::shared_ptr<DutyLoop> loop, const std::string& endpoint,
                const std::shared_ptr<grpc::Channel>& channel, Outlets outlets);
  void Start();
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<DutyLoop> loop_;
  const std::string endpoint_;
  const Outlets outlets_;
  std::unique_ptr<v1::ReadSessionService::Stub> stub_;
  grpc::ClientContext call_;
  v1::ReadSessionResponse in_;
  absl::Status why_;
  absl::Notification done_;
  std::shared_ptr<SessionStream> self_;  // until the loop has heard of the end

  Mutex mutex_;
  std::deque<v1::ReadSessionRequest> out_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace engram::client
