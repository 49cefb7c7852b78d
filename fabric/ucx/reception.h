// The target's end of every connection: a worker, and an endpoint to each reader that said hello,
// for the answers. What an ask is answered is the directory's. A reader that takes no answers, or
// asks for what no reader of ours asks for, is left.
// Thread-confined: call from the owner thread only, but for address() and Wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engram/clock.h"
#include "fabric/ucx/messages.h"
#include "fabric/ucx/transport.h"

namespace engram::fabric::ucx {

// Who may read what. Implemented by the target.
class Directory {
 public:
  virtual ~Directory() = default;
  virtual Outcome Judge(const Ask& hello) = 0;
  virtual Received<Answer> Find(const Ask& import) = 0;
  // The tail of the answer.
  virtual std::vector<std::byte> Read(const Ask& read, std::span<const Range> ranges) = 0;
};

class Reception {
 public:
  // `host`: address on which it listens; not used in shared memory.
  static absl::StatusOr<std::unique_ptr<Reception>> Open(std::shared_ptr<const Transport> transport,
                                                         const std::string& host,
                                                         Directory* directory);
  ~Reception();

  TargetLocation::Kind kind() const {
    return listener_ == nullptr ? TargetLocation::Kind::kWorker : TargetLocation::Kind::kSocket;
  }
  const std::vector<std::byte>& address() const { return address_; }

  // Serves, answers, sees readers off. False: there was nothing to do.
  bool Turn();
  // Until there may be something to do, or Wake, or `most` is over. REQUIRES: Turn returned false.
  void Sleep(Duration most);
  // Ends a Sleep, now or the next one. Any thread may call it.
  void Wake();

  // Tells the readers of a session, or all of them, that this is the end, and closes.
  void Dismiss(const SessionToken& session);
  void DismissAll();
  bool empty() const { return readers_.empty() && callers_.empty(); }

 private:
  struct Reader {
    Reception* reception = nullptr;
    std::uint64_t id = 0;
    SessionToken token;
    ucp_ep_h endpoint = nullptr;
    std::size_t unsent = 0;  // bytes of answers that UCX has not taken
    bool leaves = false;     // closes when what was sent is gone, or at the deadline
    bool failed = false;
    bool flushing = false;
    Instant leave_deadline;
    void* closing = nullptr;  // the request
  };

  Reception(std::shared_ptr<const Transport> transport, Directory* directory)
      : transport_(std::move(transport)), library_(transport_->library()), directory_(directory) {}

  struct Message {
    Received<Ask> ask;
    ucp_ep_h from = nullptr;
  };

  // The worker, and where it can be reached.
  absl::Status OpenDoor(const std::string& host);
  absl::Status Listen(const std::string& host);
  static void Called(ucp_conn_request_h caller, void* reception);
  void Accept(ucp_conn_request_h caller);
  static ucs_status_t Receive(void* reception, const void*, std::size_t, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* param);
  static void Failed(void* reader, ucp_ep_h, ucs_status_t);
  static void Flushed(void* request, ucs_status_t, void* reader);
  void Take(const Message& message);
  void Welcome(const Message& hello);
  // Who said it, in a list of its own till then; null: nobody that can be answered.
  std::unique_ptr<Reader> SenderOf(const Message& hello);
  void Reply(Reader& reader, const Answer& head, std::span<const std::byte> tail);
  void AnswerRead(Reader& reader, const Received<Ask>& ask);
  void Leave(Reader& reader);
  // True: it is gone, forget it.
  bool SeeOff(Reader& reader, Instant now);

  const std::shared_ptr<const Transport> transport_;
  const Libucx& library_;
  Directory* const directory_;
  const SystemClock clock_{};
  Worker worker_;
  std::vector<std::byte> address_;
  int wait_fd_ = -1;
  int wake_fd_ = -1;
  ucp_listener_h listener_ = nullptr;
  std::vector<ucp_conn_request_h> calls_;
  std::vector<Message> inbox_;
  // Who connected and has not said hello.
  std::map<ucp_ep_h, std::unique_ptr<Reader>> callers_;
  std::map<std::uint64_t, std::unique_ptr<Reader>> readers_;
  std::vector<Range> ranges_;
  int refused_sleeps_ = 0;
  bool look_after_readers_ = false;  // somebody leaves
};

}  // namespace engram::fabric::ucx
