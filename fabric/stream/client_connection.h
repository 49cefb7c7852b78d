// One lane to one peer, as a client's queue sees it: connects when it is first needed, sends queued
// messages, lands replies, reconnects after a loss when it is needed again.
//
// Lands a reply by guess: header and payload in one read, the payload straight to where the oldest
// request wants it. A wrong guess (another order, a mixed reply) costs a copy, never a wrong byte:
// what the guess wrote lies in memory of reads that are still outstanding, and the right bytes
// overwrite it before those complete.
// Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engram/clock.h"
#include "fabric/fabric.h"
#include "fabric/stream/message.h"
#include "fabric/stream/socket.h"

namespace engram::fabric::stream {

// A peer as every queue of a fabric knows it. Immutable but for `removed`: Thread-safe.
struct Peer {
  PeerId id;
  SocketAddress address;
  SessionToken token;
  Incarnation incarnation;
  std::atomic<bool> removed{false};
};

// Receives the outcome of messages. Implemented by the queue.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // Completes the message's reads (statuses empty: all with `status`) unless they were flushed
  // before, and takes the message back.
  virtual void Done(Message* message, ReadStatus status, std::span<const ReadStatus> statuses) = 0;
  // Completes the message's reads as kFlushed; the message stays with the connection.
  virtual void Flushed(Message* message) = 0;
};

class ClientConnection {
 public:
  ClientConnection(std::shared_ptr<const Peer> peer, Lane lane, int epoll_fd,
                   Duration connect_timeout, MessageSink* sink);
  ~ClientConnection();

  // The message that takes more reads of this shape, or null.
  Message* OpenFor(const Shape& shape);
  void Queue(Message* message);
  // Sends what may be sent. Connects if need be.
  void Send();
  // Receives and sends what is possible now; never blocks.
  void Drive();
  // Completes everything as kFlushed; what is on the wire drains later.
  void Abandon();
  // Closes; every read completes with `status`.
  void Fail(ReadStatus status);

  // Something is on the wire or waits for it.
  bool active() const { return !queued_.empty() || !in_flight_.empty(); }
  const Peer& peer() const { return *peer_; }
  bool in_active_list = false;

 private:
  enum class State : std::uint8_t { kClosed, kConnecting, kGreeting, kOpen };
  enum class Landing : std::uint8_t { kDirect, kStaged, kDiscard };

  void Connect();
  void Greet();
  void ReceiveGreeting();
  void Watch(bool writable);
  void CloseSocket();
  // Ends what was not sent at all.
  void DropQueued(ReadStatus status);

  // False: nothing more to receive now.
  bool ReceiveOnce();
  std::size_t PlanPayload(const Message* message, std::size_t* slots);
  bool BeginReply();
  bool Feed(std::span<const std::byte> bytes);
  void Land(std::size_t bytes, const std::byte* from);
  void Advance(std::size_t bytes);
  void EndReply();

  const std::shared_ptr<const Peer> peer_;
  const Lane lane_;
  const int epoll_fd_;
  const Duration connect_timeout_;
  MessageSink* const sink_;
  const SystemClock clock_{};

  State state_ = State::kClosed;
  Descriptor fd_;
  bool watching_writable_ = false;
  Instant connect_deadline_;
  std::array<std::byte, kHelloBytes> greeting_;
  std::size_t greeting_got_ = 0;

  std::uint64_t next_id_ = 1;
  MessageQueue queued_;                 // not sent at all
  std::vector<Message*> in_flight_;     // oldest first; the last may be partly sent
  std::span<const std::byte> sending_;  // rest of the last in-flight message

  std::array<std::byte, kReplyHeaderBytes> header_bytes_;
  std::size_t header_got_ = 0;
  ReplyHeader header_;
  Message* landing_message_ = nullptr;  // set while a payload is being received
  Landing landing_ = Landing::kDiscard;
  std::uint64_t payload_got_ = 0;
  std::size_t run_ = 0;  // kDirect: next byte goes to runs()[run_] + run_offset_
  std::size_t run_offset_ = 0;
  std::vector<std::byte> staging_;
  std::vector<std::byte> stray_;  // bytes that a wrong guess put elsewhere
  std::array<iovec, kMaxDirectRuns + 1> slots_;
};

}  // namespace engram::fabric::stream
