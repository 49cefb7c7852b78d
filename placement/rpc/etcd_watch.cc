#include "placement/rpc/etcd_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace engram::placement {
namespace {

namespace pb = etcdserverpb;

Revision HeardRevision(std::int64_t number) { return Revision(static_cast<std::uint64_t>(number)); }

constexpr Duration kReopenAfter = std::chrono::milliseconds(100);

}  // namespace

// One stream. Its messages wait for the owner, who destroys it on a thread of his own.
class EtcdWatchStream final : public grpc::ClientBidiReactor<pb::WatchRequest, pb::WatchResponse> {
 public:
  EtcdWatchStream(EtcdClient* client, EtcdClient::Member member, pb::WatchRequest request)
      : member_(std::move(member)), request_(std::move(request)) {
    absl::StatusOr<std::string> token = client->Authorize(member_, &call_);
    if (!token.ok()) {
      done_.Notify();
      return;
    }
    token_ = *std::move(token);
    stub_ = pb::Watch::NewStub(member_.channel);
    stub_->async()->Watch(&call_, this);
    StartWrite(&request_);
    StartRead(&in_);
    StartCall();
  }
  ~EtcdWatchStream() override {
    call_.TryCancel();
    done_.WaitForNotification();
  }

  std::vector<pb::WatchResponse> Take() {
    MutexLock lock(&mutex_);
    return std::exchange(heard_, {});
  }
  bool HasEnded() const { return done_.HasBeenNotified(); }
  const EtcdClient::Member& member() const { return member_; }
  const std::string& token() const { return token_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      MutexLock lock(&mutex_);
      heard_.push_back(in_);
    }
    StartRead(&in_);
  }
  void OnDone(const grpc::Status&) override { done_.Notify(); }

 private:
  const EtcdClient::Member member_;
  const pb::WatchRequest request_;
  std::string token_;
  std::unique_ptr<pb::Watch::Stub> stub_;
  grpc::ClientContext call_;
  pb::WatchResponse in_;
  absl::Notification done_;
  Mutex mutex_;
  std::vector<pb::WatchResponse> heard_ ABSL_GUARDED_BY(mutex_);
};

EtcdWatch::EtcdWatch(std::shared_ptr<EtcdClient> client, std::string hidden, std::string prefix,
                     Revision after)
    : client_(std::move(client)),
      hidden_(std::move(hidden)),
      prefix_(std::move(prefix)),
      after_(after) {
  Open();
}

EtcdWatch::~EtcdWatch() = default;

void EtcdWatch::Open() {
  pb::WatchRequest request;
  pb::WatchCreateRequest* create = request.mutable_create_request();
  create->set_key(hidden_ + prefix_);
  std::string end = PrefixEnd(hidden_ + prefix_);
  create->set_range_end(end.empty() ? std::string(1, '\0') : end);
  create->set_start_revision(static_cast<std::int64_t>(after_.value()) + 1);
  create->set_progress_notify(true);
  reopen_at_ = SystemClock::Get().Now() + kReopenAfter;
  stream_ =
      std::make_unique<EtcdWatchStream>(client_.get(), client_->Current(), std::move(request));
}

absl::StatusOr<std::vector<StoreEvent>> EtcdWatch::Poll() {
  if (!failed_.ok()) return failed_;
  // Asked before the messages are taken: none comes after the end.
  const bool ended = stream_ == nullptr || stream_->HasEnded();
  bool cancelled = false;
  std::vector<StoreEvent> events;
  for (const pb::WatchResponse& response :
       stream_ == nullptr ? std::vector<pb::WatchResponse>() : stream_->Take()) {
    if (response.canceled()) {
      cancelled = true;
      if (response.compact_revision() == 0) continue;
      failed_ = absl::OutOfRangeError(absl::StrCat(
          "state revision ", after_.value(), " of ", hidden_, prefix_,
          " is compacted; etcd remembers from ", response.compact_revision(), "; list again"));
      stream_.reset();
      return failed_;
    }
    if (response.created()) continue;
    // Without events it is a progress notice: everything up to its revision was sent.
    if (response.events().empty()) after_ = HeardRevision(response.header().revision());
    for (const pb::Event& event : response.events()) {
      after_ = HeardRevision(event.kv().mod_revision());
      StoreEvent out{event.kv().key().substr(hidden_.size()), std::nullopt, after_};
      if (event.type() == pb::Event::PUT) out.value = event.kv().value();
      events.push_back(std::move(out));
    }
  }
  if ((ended || cancelled) && SystemClock::Get().Now() >= reopen_at_) {
    if (stream_ != nullptr) {
      client_->Leave(stream_->member());
      client_->ForgetToken(stream_->token());
    }
    Open();
  }
  return events;
}

}  // namespace engram::placement
