// The read queue of the stream fabric: packs a batch into one message per (peer, lane, shape), at
// most kMaxRows reads each, keeps up to kMaxRequestsInFlight of them on a connection, and completes
// reads as their replies land. One send and one read a message while it spins. Thread-confined:
// call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/stream/client_connection.h"
#include "fabric/stream/message.h"
#include "fabric/stream/stream_fabric.h"

namespace engram::fabric::stream {

inline constexpr std::uint32_t kMaxQueueDepth = 1 << 16;

class StreamQueue final : public ReadQueue, private MessageSink {
 public:
  StreamQueue(std::shared_ptr<PeerTable> peers, std::uint32_t depth, Duration connect_timeout);
  ~StreamQueue() override;

  std::size_t Submit(std::span<const ReadOp> ops) override;
  std::size_t Poll(std::span<ReadCompletion> out) override;
  int ArmWait() override;
  void Abandon(PeerId peer) override;
  void Close() override;

 private:
  // More active connections than this are asked through epoll which of them has something.
  static constexpr std::size_t kMaxDirectlyDriven = 4;
  struct Lanes {
    std::unique_ptr<ClientConnection> lane[2];
  };

  void Done(Message* message, ReadStatus status, std::span<const ReadStatus> statuses) override;
  void Flushed(Message* message) override;

  ClientConnection* ConnectionTo(PeerId peer, Lane lane);
  std::size_t AddSome(std::span<const ReadOp> ops);
  // Null: no message can be had now (back pressure).
  Message* MessageFor(ClientConnection* connection, const Shape& shape);
  Message* TakeMessage();
  void Complete(std::uint64_t cookie, ReadStatus status);
  void MakeActive(ClientConnection* connection);
  void Progress();
  void ForgetRemovedPeers();

  const std::shared_ptr<PeerTable> peers_;
  const std::uint32_t depth_;
  const Duration connect_timeout_;
  Descriptor epoll_;
  bool closed_ = false;
  bool armed_ = false;
  std::uint64_t seen_removals_ = 0;
  std::uint32_t outstanding_ = 0;  // accepted and not yet polled

  std::vector<Lanes> connections_;          // by peer id
  std::vector<ClientConnection*> active_;   // with something queued or in flight
  std::vector<ClientConnection*> touched_;  // by the Submit at work
  std::vector<std::unique_ptr<Message>> all_messages_;
  std::vector<Message*> free_messages_;
  std::vector<ReadCompletion> ready_;  // a ring of depth_
  std::uint32_t ready_head_ = 0;
  std::uint32_t ready_count_ = 0;
};

}  // namespace engram::fabric::stream
