// A fabric of the simulation: each 64-byte line of a read is sampled at a random time between post
// and completion, so a read sees the memory change under it if anything changes it.
//
// Two kinds, each the worst of its family:
//   mapped    the client's own processor loads the lines, so a stopped client loads the rest when
//             it wakes; nothing but the protocol keeps it from recycled memory
//   ofi       hardware reads: the key is checked when a read starts, and the lines are read even
//             while the client is stopped or the key is withdrawn meanwhile
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/fabric.h"
#include "tests/simulation/world.h"

namespace engram::simulation {

// The memory of one life of one node. Readers that mapped it keep it when the node dies.
struct NodeMemory {
  struct Place {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  std::vector<std::byte> bytes;
  std::map<std::uint64_t, Place> keys;  // of the hardware
  std::set<SessionToken> admitted;
  bool alive = true;
};
// By PathAddress::address.
using Machines = std::map<std::string, std::shared_ptr<NodeMemory>>;

class SimQueue;

class SimFabric final : public fabric::Fabric {
 public:
  // What is switched off.
  struct Broken {
    bool releases = false;  // regions are released while they are read: that is not reported
    bool queues = false;    // a queue reads whoever listens at the peer's address by now
  };
  // `completed` is called when Poll has something.
  SimFabric(FabricKind kind, Process* process, Machines* machines, std::function<void()> completed,
            Broken broken);

  const fabric::FabricInfo& info() const override { return info_; }
  absl::StatusOr<fabric::PeerId> AddPeer(const fabric::PeerAddress& address,
                                         Instant deadline) override;
  void RemovePeer(fabric::PeerId peer) override;
  absl::StatusOr<fabric::RemoteRegion> Import(const fabric::RemoteRegion& granted) override;
  void Release(const fabric::RemoteRegion& imported) override;
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(std::span<std::byte> memory,
                                                                 fabric::MemoryKind kind) override;
  absl::StatusOr<std::unique_ptr<fabric::ReadQueue>> OpenQueue(
      const QueueOptions& options) override;

 private:
  friend class SimQueue;
  bool mapped() const { return info_.kind == FabricKind::kMapped; }

  fabric::FabricInfo info_;
  Process* const process_;
  Machines* const machines_;
  const std::function<void()> completed_;
  const Broken broken_;
  struct Peer {
    std::shared_ptr<NodeMemory> memory;
    std::string address;
  };
  std::map<fabric::PeerId, Peer> peers_;
  std::uint32_t last_peer_ = 0;
  using Imported = std::tuple<fabric::PeerId, std::uint64_t, std::uint64_t>;  // and address, key
  static Imported Name(const fabric::RemoteRegion& region) {
    return {region.peer, region.address, region.key};
  }
  std::map<Imported, int> imports_;
  std::set<SimQueue*> queues_;
};

class SimQueue final : public fabric::ReadQueue {
 public:
  explicit SimQueue(SimFabric* fabric);
  ~SimQueue() override;

  std::size_t Submit(std::span<const fabric::ReadOp> ops) override;
  std::size_t Poll(std::span<fabric::ReadCompletion> out) override;
  int ArmWait() override { return -1; }
  void Abandon(fabric::PeerId peer) override;
  void Close() override;

  bool Reads(const fabric::RemoteRegion& region) const;
  bool Reads(fabric::PeerId peer) const;

 private:
  struct Read {
    fabric::ReadOp op;
    std::shared_ptr<NodeMemory> memory;
    std::uint64_t at = 0;         // offset in the memory
    std::uint32_t done = 0;       // bytes landed
    std::vector<Duration> times;  // of the lines and of the completion, from the post, falling
    Instant posted{};
  };

  void Next(std::uint64_t id);
  void Step(std::uint64_t id);
  ReadStatus Begin(Read& read);
  void Land(Read& read);
  void Complete(std::uint64_t id, ReadStatus status);

  SimFabric* const fabric_;
  bool closed_ = false;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Read> reads_;
  std::deque<fabric::ReadCompletion> completions_;
  // Events of a queue that is gone find this expired.
  std::shared_ptr<SimQueue*> self_ = std::make_shared<SimQueue*>(this);
};

}  // namespace engram::simulation
