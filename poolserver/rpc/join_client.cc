#include "poolserver/rpc/join_client.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "engram/v1/placement.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::poolserver {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(100);
// Heartbeats while the controller does not read: far fewer than this before keep-alive ends it.
constexpr std::size_t kMaxQueuedMessages = 4096;

}  // namespace

// One stream. Reads go one at a time, the next when the loop has handled the last.
class JoinStream final : public grpc::ClientBidiReactor<v1::JoinRequest, v1::JoinResponse>,
                         public std::enable_shared_from_this<JoinStream> {
 public:
  explicit JoinStream(NodeLoop* loop) : loop_(loop) {}

  void Start(v1::NodeService::Stub* stub) {
    stub->async()->Join(&call_, this);
    AddHold();  // until the last read: others start reads and writes before that
    StartRead(&in_);
    StartCall();
  }

  void Send(const NodeToController& message) {
    MutexLock lock(&mutex_);
    if (reads_ended_ || out_.size() >= kMaxQueuedMessages) {
      call_.TryCancel();
      return;
    }
    out_.push_back(wire::ToWire(message));
    if (out_.size() == 1) StartWrite(&out_.front());
  }

  void Cancel() { call_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      absl::StatusOr<ControllerToNode> message = wire::FromWire(in_);
      if (message.ok()) {
        ControllerSaid said;
        said.message = *std::move(message);
        loop_->Post(Event(std::in_place_type<ControllerSaid>, std::move(said)),
                    [self = shared_from_this()] { self->ReadMore(); });
        return;
      }
      why_ = message.status();
      call_.TryCancel();
    }
    {
      MutexLock lock(&mutex_);
      reads_ended_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    out_.pop_front();
    if (!ok) {
      out_.clear();
      return;
    }
    if (!out_.empty() && !reads_ended_) StartWrite(&out_.front());
  }

  void OnDone(const grpc::Status& status) override {
    if (why_.ok())
      why_ = status.ok() ? absl::UnavailableError("the controller ended the stream")
                         : wire::FromGrpc(status);
    done_.Notify();
  }

  // Why the stream ended.
  absl::Status Wait() {
    done_.WaitForNotification();
    return why_;
  }

 private:
  void ReadMore() { StartRead(&in_); }

  NodeLoop* const loop_;
  grpc::ClientContext call_;
  v1::JoinResponse in_;
  absl::Status why_;
  absl::Notification done_;

  Mutex mutex_;
  std::deque<v1::JoinRequest> out_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool reads_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

JoinClient::JoinClient(std::string controller, wire::CredentialsPtr credentials,
                       std::function<void(const std::string&)> say)
    : controller_(std::move(controller)),
      controllers_(wire::Controllers::Split(controller_),
                   [credentials = std::move(credentials)](const std::string& endpoint) {
                     return wire::Connect(endpoint, credentials, {Role::kController, ""});
                   }),
      say_(std::move(say)) {}

JoinClient::~JoinClient() { Stop(); }

void JoinClient::Start(NodeLoop* loop) {
  loop_ = loop;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "rpc/join");
}

void JoinClient::Send(const NodeToController& message) {
  std::shared_ptr<JoinStream> stream;
  {
    MutexLock lock(&mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Send(message);
}

void JoinClient::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
  }
  if (thread_.joinable()) thread_.join();
}

void JoinClient::Run() {
  // One of several is asked as often as the only one would be.
  const Duration longest =
      wire::kAskEachController / static_cast<int>(controllers_.endpoints().size());
  Duration pause = kFirstPause;
  bool said_lost = false;
  do {
    const Instant started = SystemClock::Get().Now();
    const absl::Status why = Carry();
    // A stream that lasted was a good one: the next is tried soon.
    if (SystemClock::Get().Now() - started > wire::kAskEachController) {
      pause = kFirstPause;
      said_lost = false;
    }
    if (!WaitUnlessStopped(Duration::zero())) return;
    if (!said_lost) {
      said_lost = true;
      // What it answered is no absence: the node's own log says how it goes on.
      say_(absl::IsUnavailable(why)
               ? absl::StrCat("no controller at ", controller_, ": ", why.message(),
                              "; trying again, read sessions go on")
               : absl::StrCat("the controller at ", controller_,
                              " ended the stream: ", why.message()));
    }
    if (!WaitUnlessStopped(pause)) return;
    pause = std::min(pause * 2, longest);
  } while (true);
}

absl::Status JoinClient::Carry() {
  const wire::Controllers::One controller = controllers_.Current();
  std::unique_ptr<v1::NodeService::Stub> stub = v1::NodeService::NewStub(controller.channel);
  auto stream = std::make_shared<JoinStream>(loop_);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::UnavailableError("stopping");
    stream_ = stream;
  }
  stream->Start(stub.get());
  loop_->Post(ControllerConnected{});
  absl::Status why = stream->Wait();
  {
    MutexLock lock(&mutex_);
    stream_.reset();
  }
  // The loop has forgotten this stream before the next one begins, so that nothing meant for one
  // is sent on the other.
  PostAndWait(ControllerLost{});
  controllers_.Failed(controller, absl::UnavailableError(why.message()));
  return why;
}

void JoinClient::PostAndWait(Event event) {
  auto handled = std::make_shared<absl::Notification>();
  loop_->Post(std::move(event), [handled] { handled->Notify(); });
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || handled->HasBeenNotified();
  };
  while (true) {
    MutexLock lock(&mutex_);
    if (mutex_.AwaitFor(std::chrono::milliseconds(20), done)) return;
  }
}

bool JoinClient::WaitUnlessStopped(Duration time) {
  MutexLock lock(&mutex_);
  return !mutex_.AwaitFor(time,
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
}

}  // namespace engram::poolserver
