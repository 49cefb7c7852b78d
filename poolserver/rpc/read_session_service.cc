#include "poolserver/rpc/read_session_service.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "proto/credentials.h"

namespace engram::poolserver {
namespace {

// What may wait for a client that does not read. Grants are large and rare, the rest is small.
constexpr std::size_t kMaxMessagesToClient = 1024;
constexpr std::size_t kMaxQueuedBytes = std::size_t{256} << 20;

grpc::Status NotReady() {
  return {grpc::StatusCode::UNAVAILABLE, "this pool node is starting or stopping; try again"};
}

class RefusedStream final
    : public grpc::ServerBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse> {
 public:
  explicit RefusedStream(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

}  // namespace

// One gRPC stream. Its reads go one at a time: the next starts when the loop has handled the last,
// so a client cannot fill the loop's queue. Destroyed when gRPC and the loop have let go of it.
class SessionStream final
    : public grpc::ServerBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse> {
 public:
  SessionStream(ReadSessionService* service, StreamId id, std::optional<Identity> caller)
      : service_(service), id_(id), caller_(std::move(caller)) {}

  void Start(std::shared_ptr<SessionStream> self) {
    self_ = std::move(self);
    StartRead(&in_);
  }

  void Send(const NodeMessage& message) {
    v1::ReadSessionResponse wire = wire::ToWire(message);
    const std::size_t bytes = wire.ByteSizeLong();
    bool overflow = false;
    {
      MutexLock lock(&mutex_);
      if (finished_ || closing_) return;
      overflow = out_.size() >= kMaxMessagesToClient || queued_bytes_ + bytes > kMaxQueuedBytes;
      if (!overflow) {
        queued_bytes_ += bytes;
        out_.push_back(std::move(wire));
        if (out_.size() == 1) StartWrite(&out_.front());
      }
    }
    if (overflow) {
      End({grpc::StatusCode::RESOURCE_EXHAUSTED,
           absl::StrCat("the client reads too slowly: ", kMaxMessagesToClient, " messages or ",
                        kMaxQueuedBytes, " bytes wait for it; open the session again")});
    }
  }

  // After everything sent before.
  void Close() {
    {
      MutexLock lock(&mutex_);
      closing_ = true;
      if (!out_.empty()) return;
    }
    End(grpc::Status::OK);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);
    absl::StatusOr<ClientMessage> message = wire::FromWire(in_);
    if (!message.ok()) return End(wire::ToGrpc(message.status()));
    if (auto* open = std::get_if<OpenSession>(&*message)) open->proven = caller_;
    service_->Heard(id_, *std::move(message), [self = self_] { self->ReadMore(); });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End({grpc::StatusCode::UNAVAILABLE, "the client is gone"});
    {
      MutexLock lock(&mutex_);
      queued_bytes_ -= out_.front().ByteSizeLong();
      out_.pop_front();
      if (!out_.empty()) {
        if (!finished_) StartWrite(&out_.front());
        return;
      }
      if (!closing_) return;
    }
    End(grpc::Status::OK);
  }

  void OnCancel() override { End({grpc::StatusCode::CANCELLED, "the client is gone"}); }

  void OnDone() override {
    service_->Ended(id_);
    self_.reset();  // may delete this
  }

 private:
  void ReadMore() {
    MutexLock lock(&mutex_);
    if (!finished_) StartRead(&in_);
  }

  void End(const grpc::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(status);
  }

  ReadSessionService* const service_;
  const StreamId id_;
  const std::optional<Identity> caller_;  // where calls are authenticated
  std::shared_ptr<SessionStream> self_;   // gRPC's reference
  v1::ReadSessionRequest in_;

  Mutex mutex_;
  std::deque<v1::ReadSessionResponse> out_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

ReadSessionService::ReadSessionService(Identity identity) : identity_(std::move(identity)) {}
ReadSessionService::~ReadSessionService() = default;

void ReadSessionService::Serve(NodeLoop* loop, const Tiers* tiers, Exposure* exposure) {
  MutexLock lock(&mutex_);
  loop_ = loop;
  tiers_ = tiers;
  exposure_ = exposure;
}

// Clients are told: a stream that only breaks lets them read on under their leases, and what they
// have mapped of a device is its next user's when this process has ended.
void ReadSessionService::Detach() {
  std::map<StreamId, std::shared_ptr<SessionStream>> streams;
  {
    MutexLock lock(&mutex_);
    loop_ = nullptr;
    tiers_ = nullptr;
    exposure_ = nullptr;
    streams = streams_;
  }
  for (const auto& [id, stream] : streams) {
    stream->Send(SessionRefused{absl::UnavailableError("this pool node is stopping")});
    stream->Close();
  }
}

grpc::ServerBidiReactor<v1::ReadSessionRequest, v1::ReadSessionResponse>*
ReadSessionService::ReadSession(grpc::CallbackServerContext* call) {
  std::shared_ptr<SessionStream> stream;
  {
    MutexLock lock(&mutex_);
    if (loop_ == nullptr) return new RefusedStream(NotReady());
    const StreamId id(++last_stream_);
    stream = std::make_shared<SessionStream>(this, id, wire::CallerIdentity(*call));
    streams_[id] = stream;
  }
  SessionStream* const reactor = stream.get();
  reactor->Start(std::move(stream));
  return reactor;
}

void ReadSessionService::Heard(StreamId stream, ClientMessage message,
                               std::function<void()> handled) {
  MutexLock lock(&mutex_);
  if (loop_ != nullptr) loop_->Post(ClientSaid{stream, std::move(message)}, std::move(handled));
}

void ReadSessionService::Ended(StreamId stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
  if (loop_ != nullptr) loop_->Post(StreamBroken{stream});
}

std::shared_ptr<SessionStream> ReadSessionService::Find(StreamId stream) {
  MutexLock lock(&mutex_);
  auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

void ReadSessionService::Send(StreamId stream, const NodeMessage& message) {
  if (auto found = Find(stream)) found->Send(message);
}

void ReadSessionService::Close(StreamId stream) {
  if (auto found = Find(stream)) found->Close();
}

grpc::ServerUnaryReactor* ReadSessionService::GetNodeStatus(grpc::CallbackServerContext* call,
                                                            const v1::GetNodeStatusRequest*,
                                                            v1::GetNodeStatusResponse* response) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  MutexLock lock(&mutex_);
  if (loop_ == nullptr) {
    reactor->Finish(NotReady());
    return reactor;
  }
  response->set_node(identity_.node.name);
  response->set_version(identity_.version);
  for (const TierCapacity& tier : tiers_->capacity()) *response->add_tiers() = wire::ToWire(tier);
  for (const PathAddress& path : exposure_->paths()) *response->add_paths() = wire::ToWire(path);
  loop_->Ask([reactor, response](const NodeState& state) {
    response->set_incarnation(state.incarnation().value());
    response->set_sessions(static_cast<std::uint32_t>(state.sessions()));
    response->set_retirements_pending(static_cast<std::uint32_t>(state.retirements_pending()));
    std::uint32_t serving = 0;
    for (const auto& [shard, replica] : state.replicas()) {
      serving += replica.state() == ReplicaState::kServing ? 1 : 0;
    }
    response->set_replicas_serving(serving);
    if (!state.registered()) {
      response->set_not_ready_reason("the controller has not accepted this node yet");
    } else if (!state.controller_reachable()) {
      response->set_not_ready_reason("the controller cannot be reached");
    } else if (serving == 0) {
      response->set_not_ready_reason("no replica is serving");
    }
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace engram::poolserver
