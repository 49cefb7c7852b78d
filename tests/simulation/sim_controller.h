// A controller of the simulation: the real placement::Controller on a store that survives its
// crashes, with streams that the world decides on; where the controllers elect one of them, the
// real placement::Election decides when it has one, as in ControllerLoop. Thread-confined: call
// from the owner thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "placement/heat/heat_board.h"
#include "placement/ops/controller.h"
#include "placement/ops/election.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/sim_store.h"

namespace engram::simulation {

class SimNode;

class SimController {
 public:
  SimController(Cluster* cluster, std::string name, std::int64_t rate_ppm);

  Process& process() { return process_; }
  // Takes the store from whoever had it; where they elect, it stands for election.
  void Start();
  void Crash();
  void TroubleStore(Duration length);
  // Nothing passes between it and the store.
  void CutStore(Duration length);
  // Answers of the store to its election come as late as `most`.
  void SlowStore(Duration length, Duration most);
  // It is stopped between what it decides next and saying so, and says it when it wakes.
  void StopInTheMiddle(Duration length) { stop_for_ = length; }
  // It was elected, and its lease has not run out by its own clock.
  bool HoldsLease() const { return life_ && process_.Now() < life_->leads_until; }
  // As its election would: it looks now whether it still leads, and dies if not.
  void LookWhoLeads();
  // Null while the process is dead, or does not lead.
  const placement::Controller* controller() const {
    return life_ ? life_->controller.get() : nullptr;
  }

  // An operator asks; nothing happens when the process is dead or stopped. The same `request` again
  // is the same attempt.
  void Load(const TableName& name, const TableSpec& spec, const TableOptions& options,
            std::uint64_t seed);
  void Delete(const TableName& name);
  void SetIntent(const NodeId& node, placement::NodeIntent intent);
  // A client of the tenant "default", to which every table belongs.
  void Revoke(const std::string& client, bool restore);
  void Move(const TableName& table, ShardIndex shard, const NodeId& from, const NodeId& to,
            std::optional<Tier> tier);
  // NAME@live is `version` from now on; empty: nothing.
  void SetAlias(const std::string& name, const std::string& version);
  // Adds what this life counted to the results. Called once a life.
  void Count();

  struct Link {
    std::shared_ptr<Stream> stream;
    std::uint64_t id = 0;
  };
  // Called by a node's process. Nothing when nobody listens.
  std::optional<Link> Accept(Process* process, SimNode* node);
  void HearNode(std::uint64_t link, const NodeToController& message);
  // Runs in this process: what a client read.
  void HearHeat(const placement::HeatReport& report);
  // Called by a client's process: WatchMap.
  std::shared_ptr<Stream> Watch(Process* client, Epoch from,
                                std::function<void(const MapDelta&)> deliver);

 private:
  struct NodeEnd {
    std::shared_ptr<Stream> stream;
    SimNode* node = nullptr;
  };
  struct Watcher {
    std::shared_ptr<Stream> stream;
    std::function<void(const MapDelta&)> deliver;
  };
  struct Life {
    placement::HeatBoard heat{std::chrono::seconds(2)};
    std::unique_ptr<placement::Controller> controller;
    std::map<std::uint64_t, NodeEnd> nodes;
    std::map<std::uint64_t, Watcher> watchers;
    std::unique_ptr<placement::Election> election;  // null: nobody is elected
    Instant leads_until{};
    Instant next_try{};  // to take the seat
    std::uint64_t armed = 0;
  };

  // ---- the election ----
  void FeedElection(const placement::Election::Event& event);
  void DoElection(const placement::Election::ReadRecord&);
  void DoElection(const placement::Election::WriteRecord& action);
  void DoElection(const placement::Election::Lead& action) { life_->leads_until = action.until; }
  void DoElection(const placement::Election::Follow&) { life_->leads_until = Instant(); }
  // `ask` runs at the store; what it returns comes back later, to the same life.
  void AskStore(std::function<placement::Election::Event()> ask);
  // Whether it may act. Takes or leaves the seat where that has changed.
  bool Leads();
  // False: the store does not let it.
  bool TakeSeat();
  void StepDown();

  bool Awake() const { return controller() != nullptr && !process_.stopped(); }
  placement::ControllerOptions Options();
  void Feed(placement::Event event);
  void CarryOut(const std::vector<placement::Action>& actions);
  void Tick();
  // What a load whose answer was lost has made is a table, too.
  void LearnTables();
  // It reads everything anew some time later, unless another one leads then.
  void StartSoon();
  void Do(const placement::SendToNode& action);
  void Do(const placement::CloseLink& action);
  void Do(const placement::Answer& action);
  void Do(const placement::IntentAnswer&) {}
  void Do(const placement::MoveAnswer&) {}
  void Do(const placement::TenantAnswer&) {}
  void Do(const placement::MapChanged& action);
  void Do(const placement::Say& action);
  void Do(const placement::Deposed& action);

  Cluster* const cluster_;
  Process process_;
  SimStore store_, votes_;
  Instant slow_until_{};
  Duration slow_{}, stop_for_{};
  std::uint64_t starts_ = 0;
  std::uint64_t last_link_ = 0;
  std::uint64_t last_call_ = 0;
  std::unique_ptr<Life> life_;
};

}  // namespace engram::simulation
