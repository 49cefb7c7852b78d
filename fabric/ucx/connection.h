// The reader's end of a connection to a target: a worker of its own with one endpoint. It says
// hello and is open when the target has answered that it is the incarnation that was meant and that
// the session may read. A worker of its own, so that closing it leaves nothing that could land.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engram/clock.h"
#include "engram/random.h"
#include "fabric/ucx/messages.h"
#include "fabric/ucx/transport.h"

namespace engram::fabric::ucx {

// Receives the answers of kRead. Implemented by the link that asks.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // `tail` is valid during the call.
  virtual void Land(const Answer& head, std::span<const std::byte> tail) = 0;
};

class Connection {
 public:
  enum class State : std::uint8_t {
    kClosed,
    kGreeting,  // made, and the answer to the hello is not here
    kOpen,
    kFailed,  // broken, or refused: close it
  };

  // `rows` may be null where nobody asks for them.
  Connection(std::shared_ptr<const Transport> transport, TargetLocation location,
             SessionToken token, AnswerSink* rows);
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // From kClosed to kGreeting; false: it cannot be made.
  bool Open();
  // Lets UCX work: callbacks run and the state may change. REQUIRES: not closed.
  void Progress();
  // Ends what is outstanding on the endpoint, whose callbacks run in here, and closes. Nothing of
  // it lands afterwards.
  void Close();

  State state() const { return state_; }
  // What the target said to the hello; kOk where it said nothing.
  Outcome refusal() const { return refusal_; }
  // REQUIRES: not closed.
  ucp_ep_h endpoint() const { return endpoint_; }
  // Readable when Progress has something to do, after Arm returned true.
  int wait_fd() const { return wait_fd_; }
  bool Arm();
  // Grows with every Open.
  std::uint64_t generation() const { return generation_; }

  // The beginning of a message on this connection.
  Ask NewAsk(Verb verb) const;
  // Asks for the key of a region; the answer is taken when it is there. REQUIRES: open.
  void AskForKey(std::uint64_t key);
  std::optional<Received<Answer>> TakeAnswer();

 private:
  static ucs_status_t Receive(void* connection, const void*, std::size_t, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t*);
  static void Failed(void* connection, ucp_ep_h, ucs_status_t);
  bool Connect();
  void Turn();
  void Settle();
  void CloseEndpoint();
  void Take(const Answer& head, std::span<const std::byte> tail);

  const std::shared_ptr<const Transport> transport_;
  const Libucx& library_;
  const TargetLocation location_;
  const SessionToken token_;
  AnswerSink* const rows_;
  SystemRandom random_;
  std::uint64_t id_ = 0;
  std::uint64_t generation_ = 0;
  State state_ = State::kClosed;
  Outcome refusal_ = Outcome::kOk;
  Worker worker_;
  ucp_ep_h endpoint_ = nullptr;
  int wait_fd_ = -1;
  std::optional<Received<Answer>> answer_;
};

}  // namespace engram::fabric::ucx
