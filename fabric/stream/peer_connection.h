// One accepted connection of the target, owned by one poller: bytes in, requests out; replies in,
// bytes out. Every amount is bounded: one receive buffer, kMaxRequestsInFlight requests, and three
// deadlines (hello, the rest of a request, the rest of a reply).
// Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engram/clock.h"
#include "fabric/stream/format.h"
#include "fabric/stream/gather.h"
#include "fabric/stream/grants.h"
#include "fabric/stream/socket.h"

namespace engram::fabric::stream {

struct Job;

struct StallLimits {
  Duration hello = std::chrono::seconds(5);    // from accept to a complete hello
  Duration request = std::chrono::seconds(5);  // from a request's first byte to its last
  Duration reply = std::chrono::seconds(10);   // from a reply's first send to its last byte sent
};

class PeerConnection {
 public:
  PeerConnection(Descriptor fd, Instant deadline);

  enum class Read : std::uint8_t { kSome, kNothing, kClosed };
  // One receive into the free part of the buffer.
  Read Receive();
  std::size_t room() const { return in_.size() - in_end_; }
  std::span<const std::byte> unread() const {
    return {in_.data() + in_begin_, in_end_ - in_begin_};
  }
  void Consume(std::size_t bytes);

  // Takes a finished job; Flush sends as much as the socket takes and returns the jobs that are
  // completely sent in `sent`. False: the connection is broken.
  void Queue(Job* job);
  bool Flush(std::vector<Job*>* sent);
  bool sending() const { return replies_count_ > 0; }
  Job* PopReply();

  int fd() const { return fd_.get(); }

  bool welcome = false;
  Lane lane = Lane::kUrgent;
  std::shared_ptr<Grants::Session> session;
  std::uint32_t jobs = 0;        // begun and not completely sent
  std::vector<Job*> waiting;     // bulk jobs not begun or between slices, oldest first
  bool queued_for_bulk = false;  // in the poller's round of bulk connections
  bool closed = false;           // waits for its asynchronous jobs only
  std::uint32_t interest = 0;    // epoll events asked for
  Instant receive_deadline = Instant::max();
  Instant send_deadline = Instant::max();

 private:
  Descriptor fd_;
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  std::array<Job*, kMaxRequestsInFlight> replies_{};
  std::uint32_t replies_head_ = 0;
  std::uint32_t replies_count_ = 0;
  std::size_t sent_ = 0;  // of the first reply
};

// A request on its way through a poller.
struct Job {
  Gather gather;
  PeerConnection* connection = nullptr;
  std::function<void()> resume;  // set once: gives the job back to its poller
};

}  // namespace engram::fabric::stream
