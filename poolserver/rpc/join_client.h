// The node's stream to the controller that leads: connects, connects again with back-off for as
// long as it takes, to the others of the list too, and carries messages both ways between the
// controller and the node's loop. It decides nothing: NodeState says what to send and which
// commands to obey. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "poolserver/node_loop.h"
#include "proto/controllers.h"
#include "proto/credentials.h"

namespace engram::poolserver {

class JoinStream;

class JoinClient {
 public:
  // `controller`: HOST:PORT of one or, with commas, several. `say` gets a line for people when the
  // controller is lost or found.
  JoinClient(std::string controller, wire::CredentialsPtr credentials,
             std::function<void(const std::string&)> say);
  ~JoinClient();  // = Stop()

  // REQUIRES: the loop outlives Stop.
  void Start(NodeLoop* loop);
  // What NodeOutlets need. Dropped while there is no stream: the next one begins with a hello.
  void Send(const NodeToController& message);
  // Breaks the stream and joins. Idempotent.
  void Stop();

 private:
  void Run();
  // Carries one stream from its start to its end.
  absl::Status Carry();
  bool WaitUnlessStopped(Duration time);
  void PostAndWait(Event event);

  const std::string controller_;
  wire::Controllers controllers_;
  const std::function<void(const std::string&)> say_;
  NodeLoop* loop_ = nullptr;

  Mutex mutex_;
  std::shared_ptr<JoinStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace engram::poolserver
