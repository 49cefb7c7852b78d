#include "client/rpc/map_stream.h"

#include <utility>

#include "absl/time/time.h"

namespace engram::client {

std::shared_ptr<MapStream> MapStream::Open(std::shared_ptr<DutyLoop> loop,
                                           std::shared_ptr<grpc::Channel> channel,
                                           const v1::WatchMapRequest& request, Outlets outlets) {
  std::shared_ptr<MapStream> stream(new MapStream(std::move(loop), request, std::move(outlets)));
  stream->self_ = stream;
  stream->stub_ = v1::PoolService::NewStub(std::move(channel));
  stream->stub_->async()->WatchMap(&stream->call_, &stream->request_, stream.get());
  stream->AddHold();  // until the last read: the loop starts reads
  stream->StartRead(&stream->in_);
  stream->StartCall();
  return stream;
}

MapStream::MapStream(std::shared_ptr<DutyLoop> loop, const v1::WatchMapRequest& request,
                     Outlets outlets)
    : loop_(std::move(loop)), request_(request), outlets_(std::move(outlets)) {}

void MapStream::OnReadDone(bool ok) {
  if (ok) {
    absl::StatusOr<bool> whole = assembler_.Add(in_);
    if (whole.ok() && !*whole) {
      StartRead(&in_);
      return;
    }
    if (whole.ok()) {
      const bool posted =
          loop_->Post([self = shared_from_this(), delta = assembler_.Take()]() mutable {
            self->outlets_.delta(std::move(delta));
            self->StartRead(&self->in_);
          });
      if (posted) return;
    } else {
      why_ = whole.status();
    }
    call_.TryCancel();
  }
  RemoveHold();
}

void MapStream::OnDone(const grpc::Status& status) {
  if (why_.ok()) why_ = wire::FromGrpc(status);
  if (why_.ok()) why_ = absl::UnavailableError("the controller ended the stream");
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

bool MapStream::WaitDone(Duration timeout) {
  return done_.WaitForNotificationWithTimeout(absl::FromChrono(timeout));
}

}  // namespace engram::client
