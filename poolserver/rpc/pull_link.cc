#include "poolserver/rpc/pull_link.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "engram/mutex.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::poolserver {
namespace {

// Renewals while the other node does not read; the lease ends long before.
constexpr std::size_t kMostUnsaid = 1024;

class PullStream final
    : public grpc::ClientBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse> {
 public:
  PullStream(const std::string& endpoint, const wire::CredentialsPtr& credentials, PullHears hears)
      : endpoint_(endpoint),
        hears_(std::move(hears)),
        stub_(v1::ReadSessionService::NewStub(
            wire::Connect(endpoint, credentials, {Role::kNode, ""}))) {
    stub_->async()->ReadSession(&call_, this);
    AddHold();  // until the last read: others start reads and writes before that
    StartRead(&in_);
    StartCall();
  }

  void Send(const ClientMessage& message) {
    MutexLock lock(&mutex_);
    if (closing_ || ended_) return;
    if (out_.size() >= kMostUnsaid) return call_.TryCancel();
    out_.push_back(wire::ToWire(message));
    if (out_.size() == 1) StartWrite(&out_.front());
  }

  // Ends the stream after what was said, and waits a little for that; then at once.
  void Close() {
    {
      MutexLock lock(&mutex_);
      closing_ = true;
      if (out_.empty() && !ended_) EndWrites();
    }
    if (!done_.WaitForNotificationWithTimeout(absl::Milliseconds(500))) call_.TryCancel();
    done_.WaitForNotification();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      absl::StatusOr<NodeMessage> message = wire::FromWire(in_);
      if (message.ok()) {
        hears_.heard(*message);
        StartRead(&in_);
        return;
      }
      why_ = message.status();
      call_.TryCancel();
    }
    {
      MutexLock lock(&mutex_);
      ended_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    out_.pop_front();
    if (!ok || ended_) {
      out_.clear();
    } else if (!out_.empty()) {
      StartWrite(&out_.front());
    } else if (closing_) {
      EndWrites();
    }
  }

  void OnDone(const grpc::Status& status) override {
    if (why_.ok()) why_ = wire::FromGrpc(status);
    if (why_.ok()) why_ = absl::UnavailableError("the node ended the session");
    hears_.lost(absl::Status(why_.code(), absl::StrCat(endpoint_, ": ", why_.message())));
    done_.Notify();
  }

 private:
  void EndWrites() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(ended_, true)) return;
    StartWritesDone();
  }

  const std::string endpoint_;
  const PullHears hears_;
  const std::unique_ptr<v1::ReadSessionService::Stub> stub_;
  grpc::ClientContext call_;
  v1::ReadSessionResponse in_;
  absl::Status why_;
  absl::Notification done_;

  Mutex mutex_;
  std::deque<v1::ReadSessionRequest> out_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcPullLink final : public PullLink {
 public:
  GrpcPullLink(const std::string& endpoint, const wire::CredentialsPtr& credentials,
               PullHears hears)
      : stream_(endpoint, credentials, std::move(hears)) {}
  ~GrpcPullLink() override { stream_.Close(); }
  void Send(const ClientMessage& message) override { stream_.Send(message); }

 private:
  PullStream stream_;
};

}  // namespace

std::unique_ptr<PullLink> OpenPullLink(const std::string& endpoint,
                                       const wire::CredentialsPtr& credentials, PullHears hears) {
  return std::make_unique<GrpcPullLink>(endpoint, credentials, std::move(hears));
}

}  // namespace engram::poolserver
