// One peer as one queue sees it: a connection, its reads in flight and those not posted yet. How a
// read is made is the kind's: get_link.h where the NIC serves it, ask_link.h elsewhere. Any error
// closes the connection, which ends every read; the next read opens another.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "engram/clock.h"
#include "fabric/link_queue.h"
#include "fabric/ucx/connection.h"
#include "fabric/ucx/ucx_fabric.h"

namespace engram::fabric::ucx {

// What a link is made of.
struct LinkParts {
  std::shared_ptr<const Transport> transport;
  std::shared_ptr<const UcxPeer> peer;
  Duration connect_timeout;
  ReadSink* sink = nullptr;
};

class Link : public ReadLink {
 public:
  void Drive() final;
  void End(ReadStatus status) final;

  // Null: it has no connection, so nothing is to be waited for.
  Connection* connection() {
    return connection_.state() == Connection::State::kClosed ? nullptr : &connection_;
  }
  // Of the connection that the queue's descriptor knows of.
  std::uint64_t watched_generation = 0;

 protected:
  Link(const LinkParts& parts, AnswerSink* rows);

  // The connection is open.
  virtual void PostWaiting() = 0;
  // The connection is about to be closed, because reads end with `status`.
  virtual void BeforeClose(ReadStatus status) = 0;
  // The connection is closed: completes the reads that are still in flight with `status`.
  virtual void EndInFlight(ReadStatus status) = 0;

  const std::shared_ptr<const Transport> transport_;
  const Libucx& library_;
  const std::shared_ptr<const UcxPeer> peer_;
  Connection connection_;
  // The connection cannot go on; Drive ends it.
  bool broken_ = false;

 private:
  const Duration connect_timeout_;
  const SystemClock clock_{};
  Instant greet_deadline_;
};

// Of the kind that the transport wants.
std::unique_ptr<Link> MakeLink(const LinkParts& parts);

}  // namespace engram::fabric::ucx
