#include "placement/rpc/node_service.h"

#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "proto/credentials.h"

namespace engram::placement {

// One stream. Kept alive by the service's map until OnDone, which gRPC calls once Finish was called
// and no operation is outstanding.
class JoinReactor final : public grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse> {
 public:
  JoinReactor(NodeService* service, ControllerLoop* loop, LinkId link,
              std::optional<Identity> caller)
      : service_(service), loop_(loop), link_(link), caller_(std::move(caller)) {}

  // After the map holds this: a callback may come at once.
  void Start() {
    loop_->Post(LinkOpened{link_});
    Read();
  }

  void Read() {
    MutexLock lock(&mutex_);
    if (!finished_) StartRead(&request_);
  }

  void Send(v1::JoinResponse message) {
    MutexLock lock(&mutex_);
    if (finished_ || closing_) return;
    if (queue_.size() >= NodeService::kMaxQueued) {
      closing_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "the node does not read what the controller sends; join again");
    } else {
      queue_.push_back(std::move(message));
    }
    Advance();
  }

  void Close(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    if (!closing_) closing_ = status;
    Advance();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      loop_->Post(LinkBroke{link_});
      MutexLock lock(&mutex_);
      queue_.clear();
      closing_ = grpc::Status::OK;
      Advance();
      return;
    }
    absl::StatusOr<NodeToController> message = wire::FromWire(request_);
    if (absl::Status own = CheckOwnName(message); !own.ok()) message = own;
    if (!message.ok()) {
      loop_->Post(LinkBroke{link_});
      Close(wire::ToGrpc(message.status()));
      return;
    }
    loop_->Post(NodeSaid{link_, *std::move(message)}, [service = service_, link = link_] {
      if (std::shared_ptr<JoinReactor> reactor = service->Find(link)) reactor->Read();
    });
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      queue_.clear();
      if (!closing_) closing_ = grpc::Status::CANCELLED;
    }
    Advance();
  }

  // Also when no read is outstanding to fail.
  void OnCancel() override {
    loop_->Post(LinkBroke{link_});
    MutexLock lock(&mutex_);
    queue_.clear();
    if (!closing_) closing_ = grpc::Status::CANCELLED;
    Advance();
  }

  void OnDone() override {
    loop_->Post(LinkBroke{link_});
    service_->Forget(link_);
  }

 private:
  // A certificate speaks for its own node alone.
  absl::Status CheckOwnName(const absl::StatusOr<NodeToController>& message) const {
    const NodeHello* hello = message.ok() ? std::get_if<NodeHello>(&*message) : nullptr;
    if (hello == nullptr || !caller_ || hello->node.name == caller_->name) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        "a process with the certificate of ", caller_->Describe(), " says that it is node ",
        hello->node.name, "; give it the certificate of that node, or --node-id ", caller_->name));
  }

  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_ || writing_) return;
    if (!queue_.empty()) {
      writing_ = true;
      response_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&response_);
    } else if (closing_) {
      finished_ = true;
      Finish(*closing_);
    }
  }

  NodeService* const service_;
  ControllerLoop* const loop_;
  const LinkId link_;
  const std::optional<Identity> caller_;  // where calls are authenticated
  v1::JoinRequest request_;               // owned by gRPC between Read and OnReadDone
  Mutex mutex_;
  v1::JoinResponse response_;
  std::deque<v1::JoinResponse> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> closing_ ABSL_GUARDED_BY(mutex_);
};

grpc::ServerBidiReactor<v1::JoinRequest, v1::JoinResponse>* NodeService::Join(
    grpc::CallbackServerContext* context) {
  const LinkId link = loop_->NewLink();
  const auto reactor =
      std::make_shared<JoinReactor>(this, loop_, link, wire::CallerIdentity(*context));
  bool closed;
  {
    MutexLock lock(&mutex_);
    links_[link] = reactor;
    closed = closed_;
  }
  reactor->Start();
  if (closed) reactor->Close(wire::ToGrpc(absl::UnavailableError("the controller is stopping")));
  return reactor.get();
}

void NodeService::Send(LinkId link, const ControllerToNode& message) {
  if (std::shared_ptr<JoinReactor> reactor = Find(link)) reactor->Send(wire::ToWire(message));
}

void NodeService::Close(LinkId link, const absl::Status& why) {
  if (std::shared_ptr<JoinReactor> reactor = Find(link)) reactor->Close(wire::ToGrpc(why));
}

void NodeService::CloseAll() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  EndAll(absl::UnavailableError("the controller is stopping"));
}

void NodeService::EndAll(const absl::Status& why) {
  std::vector<std::shared_ptr<JoinReactor>> all;
  {
    MutexLock lock(&mutex_);
    for (auto& [link, reactor] : links_) all.push_back(reactor);
  }
  for (const auto& reactor : all) reactor->Close(wire::ToGrpc(why));
}

std::shared_ptr<JoinReactor> NodeService::Find(LinkId link) {
  MutexLock lock(&mutex_);
  const auto it = links_.find(link);
  return it == links_.end() ? nullptr : it->second;
}

void NodeService::Forget(LinkId link) {
  std::shared_ptr<JoinReactor> last;  // destroyed after the lock
  MutexLock lock(&mutex_);
  const auto it = links_.find(link);
  if (it == links_.end()) return;
  last = std::move(it->second);
  links_.erase(it);
}

}  // namespace engram::placement
