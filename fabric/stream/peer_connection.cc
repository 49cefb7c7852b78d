#include "fabric/stream/peer_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

namespace engram::fabric::stream {
namespace {

constexpr std::size_t kReceiveBytes = 64 << 10;
static_assert(kReceiveBytes >= 2 * kMaxRequestBytes, "a whole request always fits");

}  // namespace

PeerConnection::PeerConnection(Descriptor fd, Instant deadline)
    : receive_deadline(deadline), fd_(std::move(fd)), in_(kReceiveBytes) {}

PeerConnection::Read PeerConnection::Receive() {
  if (room() == 0) return Read::kNothing;
  const ssize_t got = recv(fd_.get(), in_.data() + in_end_, room(), MSG_DONTWAIT);
  if (got > 0) {
    in_end_ += static_cast<std::size_t>(got);
    return Read::kSome;
  }
  const bool again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return again ? Read::kNothing : Read::kClosed;
}

void PeerConnection::Consume(std::size_t bytes) {
  in_begin_ += bytes;
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_.size() - in_begin_ < kMaxRequestBytes) {
    memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
}

void PeerConnection::Queue(Job* job) {
  replies_[(replies_head_ + replies_count_) % kMaxRequestsInFlight] = job;
  ++replies_count_;
}

Job* PeerConnection::PopReply() {
  Job* job = replies_[replies_head_];
  replies_head_ = (replies_head_ + 1) % kMaxRequestsInFlight;
  --replies_count_;
  sent_ = 0;
  return job;
}

bool PeerConnection::Flush(std::vector<Job*>* sent) {
  while (replies_count_ > 0) {
    const std::span<const std::byte> reply = replies_[replies_head_]->gather.reply();
    const ssize_t n =
        send(fd_.get(), reply.data() + sent_, reply.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    sent_ += static_cast<std::size_t>(n);
    if (sent_ < reply.size()) return true;
    sent->push_back(PopReply());
  }
  return true;
}

}  // namespace engram::fabric::stream
