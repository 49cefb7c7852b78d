// A pool node of the simulation: the real poolserver::NodeState, with an arena, loading and streams
// that the world decides on. Memory that is given back is overwritten at once with rows of another
// table. Thread-confined: call from the owner thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poolserver/node_state.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/sim_pull.h"

namespace engram::simulation {

class SimClient;

class SimNode {
 public:
  static constexpr std::uint64_t kPlaces = 12;  // replicas the node can hold, usually
  static constexpr std::uint64_t kPlaceBytes = 12'800;
  // The planner leaves room for slabs: 2 MiB and a 128th of what is free.
  static constexpr std::uint64_t CapacityFor(std::uint64_t places) {
    return (places * kPlaceBytes + (std::uint64_t{2} << 20)) * 128 / 127;
  }

  // `process` names the process: a node may have several, though only one at a time.
  SimNode(Cluster* cluster, std::string id, std::string process, std::int64_t rate_ppm,
          Duration lease);
  ~SimNode();

  Process& process() { return process_; }
  const NodeId& id() const { return id_; }
  const std::string& endpoint() const { return endpoint_; }
  void Start();
  void Crash();
  // Null while the process is dead.
  const poolserver::NodeState* state() const { return life_ ? &life_->state : nullptr; }

  // Called in this process.
  void Hear(poolserver::StreamId stream, const ClientMessage& message);
  void HearController(std::uint64_t link, const ControllerToNode& message);
  // Called by the world: a command that was on its way to the life `meant` of this node's process,
  // and found whoever it is now.
  void HearLate(std::uint64_t meant, const Command& command);
  // Called by a client's process: a stream to this node, whose messages go to `deliver` and whose
  // end to `lost`. Null when the process is dead.
  struct ClientStream {
    std::shared_ptr<Stream> stream;
    poolserver::StreamId id;
  };
  std::optional<ClientStream> Accept(Process* client,
                                     std::function<void(const NodeMessage&)> deliver);
  // A bit of a served replica of a sealed table flips. False when there is none.
  bool FlipBit();
  // Every replica that is served holds the rows that it should.
  bool MemoryIsRight() const;
  // Ends every session stream, as a network that resets connections does.
  void SeverStreams();
  void SeverController();
  // From the next start on.
  void SetPlaces(std::uint64_t places) { places_ = places; }

 private:
  // One of them for each tier that a shard is in.
  struct Held {
    std::uint64_t place = 0;
    std::uint64_t load = 0;  // numbers the loads of a life: events of an earlier one are ignored
    bool loaded = false;
    bool flipped = false;  // at some time
    std::map<poolserver::RegistrationId, std::uint64_t> keys;
    std::shared_ptr<SimPull> pull;
  };
  using ShardInTier = std::pair<ShardKey, Tier>;
  struct ClientEnd {
    std::string name;
    std::shared_ptr<Stream> stream;
    std::function<void(const NodeMessage&)> deliver;
  };
  struct Life {
    Life(poolserver::NodeOptions options, Random* random, poolserver::ProtocolSwitches switches)
        : state(std::move(options), random, switches) {}
    poolserver::NodeState state;
    std::shared_ptr<NodeMemory> memory;
    std::map<Tier, std::vector<std::uint64_t>> free_places;
    std::map<ShardInTier, Held> held;
    std::map<ShardKey, TableRecord> tables;
    std::map<poolserver::StreamId, ClientEnd> clients;
    SimController* controller = nullptr;
    std::shared_ptr<Stream> link_stream;
    std::uint64_t link = 0;
    Instant heard{};  // the controller, last
    std::uint64_t armed = 0;
    std::uint64_t loads = 0;
    std::uint64_t last_key = 0;
    std::map<std::string, std::set<std::uint64_t>> told;  // keys, by client
    std::set<std::string> revoked;
    FencingToken policies_from;
  };

  std::map<Tier, std::uint64_t> Places() const;
  std::vector<TierCapacity> TiersWith(const std::map<Tier, std::uint64_t>& free_places) const;
  void TellCapacity();
  void Feed(poolserver::Event event);
  void ArmTimer();
  void JoinController();
  // A controller that is silent is left, as keep-alive does it, where another may be elected.
  void LeaveSilent();
  // What the map says of replicas that this node is told to retire.
  void CheckRetirement(const Command& command);
  // After lease and margin no key may be left that a client which is revoked by now was told.
  void WatchKeysOf(const TenantPolicies& policies);
  void CheckKeys(const std::string& client, const std::set<std::uint64_t>& keys);
  void ReadOwnMemory();
  void FailOwnRead();
  bool LosesUpdate(const std::string& reader);
  void FillPlace(std::uint64_t place, const TableRecord& table, ShardIndex shard);
  void LoadShard(const ShardInTier& key);
  void PullShard(const ShardInTier& key, const Successor& from);
  void CopyShard(const ShardInTier& key, Tier from);
  const std::byte* BytesOf(const ShardInTier& key) const;
  // Whether sessions read that memory now.
  bool Serves(const ShardInTier& key) const;
  absl::Status Verify(const ShardInTier& key, std::vector<std::uint32_t>* crcs) const;

  void Do(const poolserver::SendToController& action);
  void Do(const poolserver::SendToClient& action);
  void Do(const poolserver::CloseStream& action);
  void Do(const poolserver::AdmitSession& action);
  void Do(const poolserver::UsePolicies&) {}
  void Do(const poolserver::DismissSession& action);
  void Do(const poolserver::AllowReplicas&) {}
  void Do(const poolserver::DisallowReplicas&) {}
  void Do(const poolserver::StartLoad& action);
  void Do(const poolserver::StopLoad& action);
  void Do(const poolserver::ExposeReplica& action);
  void Do(const poolserver::HideReplica& action);
  void Do(const poolserver::ReleaseMemory& action);
  void Do(const poolserver::ScrubSlice& action);
  void Do(const poolserver::StartInspection& action);
  void Do(const poolserver::Exit& action);

  Cluster* const cluster_;
  const NodeId id_;
  Process process_;
  const std::string endpoint_;
  const Duration lease_;
  std::uint64_t starts_ = 0;
  std::uint64_t places_ = kPlaces;
  std::uint64_t last_stream_ = 0;
  std::unique_ptr<Life> life_;
};

}  // namespace engram::simulation
