// The controllers of a pool, as whoever asks them knows them: a list of endpoints, and which of
// them to ask. One that does not lead names the leader, who is asked then, also where the list does
// not have it; one that does not answer is followed by the next. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "grpcpp/grpcpp.h"

namespace engram::wire {

// Who looks for the leader asks each controller that it was given at least once in this time. A new
// leader counts on it: see RejoinGrace in placement/rpc/program.h.
inline constexpr Duration kAskEachController = std::chrono::seconds(2);

class Controllers {
 public:
  struct One {
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
  };
  using MakeChannel = std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)>;

  // "HOST:PORT[,HOST:PORT]", spaces around a comma allowed.
  static std::vector<std::string> Split(const std::string& list);

  // InvalidArgument names the one that is not HOST:PORT.
  static absl::Status Check(const std::string& list);

  // REQUIRES: at least one endpoint. Connects with the first call.
  Controllers(std::vector<std::string> endpoints, MakeChannel connect);

  const std::vector<std::string>& endpoints() const { return endpoints_; }
  One Current() const;
  // A call to `asked` failed: the next goes to the leader that `why` names, else to the next of the
  // list. Nothing happens where another thread has moved on from `asked` before.
  void Failed(const One& asked, const absl::Status& why);

  // Asks one after the other until one gives an answer: every one of the list at least once, and
  // the leaders that they name. Each has `timeout`. Only Unavailable and DeadlineExceeded go on to
  // the next, so `call` must be safe to repeat. The error names who was asked last; it is that
  // of a controller that does not lead where there was one.
  absl::Status Call(const std::function<grpc::Status(const One&, grpc::ClientContext*)>& call,
                    Duration timeout);

 private:
  One Make(const std::string& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::string> endpoints_;
  const MakeChannel connect_;
  mutable Mutex mutex_;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // in the list
  One current_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::wire
