#include "client/rpc/session_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/convert.h"

namespace engram::client {
namespace {

// Renewals while the node does not read; its lease ends long before.
constexpr std::size_t kMaxQueuedMessages = 1024;

}  // namespace

std::shared_ptr<SessionStream> SessionStream::Open(std::shared_ptr<DutyLoop> loop,
                                                   const std::string& endpoint,
                                                   const std::shared_ptr<grpc::Channel>& channel,
                                                   Outlets outlets) {
  std::shared_ptr<SessionStream> stream(
      new SessionStream(std::move(loop), endpoint, channel, std::move(outlets)));
  stream->Start();
  return stream;
}

SessionStream::SessionStream(std::shared_ptr<DutyLoop> loop, const std::string& endpoint,
                             const std::shared_ptr<grpc::Channel>& channel, Outlets outlets)
    : loop_(std::move(loop)),
      endpoint_(endpoint),
      outlets_(std::move(outlets)),
      stub_(v1::ReadSessionService::NewStub(channel)) {}

void SessionStream::Start() {
  self_ = shared_from_this();
  stub_->async()->ReadSession(&call_, this);
  AddHold();  // until the last read: others start reads and writes before that
  StartRead(&in_);
  StartCall();
}

void SessionStream::Send(const ClientMessage& message) {
  MutexLock lock(&mutex_);
  if (closing_ || writes_ended_) return;
  if (out_.size() >= kMaxQueuedMessages) {
    call_.TryCancel();
    return;
  }
  out_.push_back(wire::ToWire(message));
  if (out_.size() == 1) StartWrite(&out_.front());
}

void SessionStream::Close() {
  MutexLock lock(&mutex_);
  if (closing_ || writes_ended_) return;
  closing_ = true;
  if (out_.empty()) WriteNext();
}

void SessionStream::WriteNext() {
  if (!out_.empty()) {
    StartWrite(&out_.front());
  } else if (closing_ && !writes_ended_) {
    writes_ended_ = true;
    StartWritesDone();
  }
}

void SessionStream::OnReadDone(bool ok) {
  if (ok) {
    absl::StatusOr<NodeMessage> message = wire::FromWire(in_);
    if (message.ok()) {
      // The next message is read when this one has been handled: a node cannot flood the loop.
      const bool posted =
          loop_->Post([self = shared_from_this(), heard = *std::move(message)]() mutable {
            self->outlets_.heard(std::move(heard));
            self->StartRead(&self->in_);
          });
      if (posted) return;
    } else {
      why_ = message.status();
    }
    call_.TryCancel();
  }
  {
    MutexLock lock(&mutex_);
    writes_ended_ = true;
  }
  RemoveHold();
}

void SessionStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  if (!out_.empty()) out_.pop_front();
  if (!ok || writes_ended_) {
    out_.clear();
    return;
  }
  WriteNext();
}

void SessionStream::OnDone(const grpc::Status& status) {
  if (why_.ok()) why_ = wire::FromGrpc(status);
  if (why_.ok()) why_ = absl::UnavailableError("the node ended the session");
  why_ = absl::Status(why_.code(), absl::StrCat(endpoint_, ": ", why_.message()));
  // The loop drops the last reference: this thread is one of those that end with the last channel
  // of the process, and would wait for itself. Where the loop has stopped, the stream stays for
  // ever.
  const std::shared_ptr<DutyLoop> loop = loop_;  // this may be gone when Post returns
  loop->Post([self = shared_from_this()] {
    self->outlets_.lost(self->why_);
    self->self_.reset();
    self->done_.Notify();
  });
}

bool SessionStream::WaitDone(Duration timeout) {
  return done_.WaitForNotificationWithTimeout(absl::FromChrono(timeout));
}

}  // namespace engram::client
