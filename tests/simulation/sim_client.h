// A client of the simulation: the real map follower, sessions, route boards, prefetchers and row
// caches in one process, with streams, timers and polling that the world decides on. It reads
// random rows of every Ready table, in steps of two layers, and compares each delivered row with
// the golden one. Thread-confined: call from the owner thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/map_follower.h"
#include "client/prefetcher.h"
#include "client/quiescence.h"
#include "client/route_board.h"
#include "client/session.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/sim_fabric.h"

namespace engram::simulation {

class SimNode;

class SimClient {
 public:
  // `forced`: read over this fabric only.
  SimClient(Cluster* cluster, std::string name, std::int64_t rate_ppm,
            std::optional<FabricKind> forced);
  ~SimClient();

  Process& process() { return process_; }
  const std::string& name() const { return process_.name(); }
  void Start();
  void Crash();
  // When a step was last delivered whole, by the world's clock.
  Instant last_whole_read() const { return last_whole_read_; }
  const ShardMap* map() const { return life_ ? life_->map->map().get() : nullptr; }

 private:
  struct Imported {
    std::uint32_t path = 0;
    std::uint8_t fabric = 0;
    fabric::RemoteRegion region;
  };
  using Imports = std::map<ShardKey, std::vector<Imported>>;
  using Leaving = std::multimap<GrantRevision, std::vector<Imported>>;
  struct NodeLink {
    std::unique_ptr<client::ClientSession> session;
    std::shared_ptr<Stream> stream;
    std::uint64_t stream_id = 0;
    SimNode* node = nullptr;
    SessionOpened opened;
    std::shared_ptr<const client::ReadLease> lease;
    std::vector<std::optional<fabric::PeerId>> peers;  // by path
    Imports routed;
    Leaving leaving;  // taken out of the routes by a revision
    std::deque<client::session::Event> pending;
    bool feeding = false;
    std::uint64_t armed = 0;
  };
  static constexpr std::uint32_t kLayers = 2;
  struct Loop {  // one step after the other
    client::Ticket ticket;
    std::vector<RowId> rows;  // [layer][row]
    std::vector<std::byte> out;
    std::vector<ReadStatus> status;
    std::vector<std::byte> delivered;  // what `out` was when the last step was over
    std::uint64_t round = 0;
    Instant needed_by[kLayers];
  };
  struct TableLink {
    TableRecord record;
    Loop loops[2];  // their memory outlives the prefetcher
    std::unique_ptr<client::RouteBoard> board;
    std::unique_ptr<client::Prefetcher> prefetcher;
    std::shared_ptr<client::ReadHeat> heat;
    bool gone = false;
    Instant whole_since{};  // when a step was last read whole, or it was opened
    std::uint64_t hedges = 0, joined = 0, cached = 0;  // as counted so far
  };
  struct Life {
    client::Quiescence quiescence;
    std::unique_ptr<SimFabric> fabrics[2];
    std::unique_ptr<client::MapFollower> map;
    std::shared_ptr<Stream> watch;
    std::map<std::string, NodeLink> nodes;
    std::map<TableUid, TableLink> tables;
    bool poll_due = false;
    std::uint64_t heat_reports = 0;
  };

  // ---- the map ----
  void FollowMap(const client::MapFollower::Event& event);
  void Subscribe(const client::MapFollower::Subscribe& ask);
  void UseMap(const ShardMap& map);
  void UseTable(const TableUid& uid);
  std::unique_ptr<client::Prefetcher> OpenPrefetcher(const TableLink& table);

  // ---- sessions ----
  void Feed(const std::string& name, client::session::Event event);
  void ArmTimer(const std::string& name);
  void Do(const std::string& name, NodeLink& link, const client::session::OpenStream& action);
  void Do(const std::string& name, NodeLink& link, const client::session::SendToNode& action);
  void Do(const std::string& name, NodeLink& link, const client::session::CloseStream& action);
  void Do(const std::string& name, NodeLink& link, const client::session::SessionStarted& action);
  void Do(const std::string& name, NodeLink& link, const client::session::ReachSuccessors& action);
  void Do(const std::string& name, NodeLink& link, const client::session::StreamCut& action);
  void Do(const std::string& name, NodeLink& link, const client::session::ChangeRoutes& action);
  void Do(const std::string& name, NodeLink& link, const client::session::ReleaseRegions& action);
  void Do(const std::string& name, NodeLink& link, const client::session::VoidRoutes& action);
  void Do(const std::string& name, NodeLink& link, const client::session::ReleaseAll& action);
  void Do(const std::string&, NodeLink&, const client::session::Stopped&) {}
  void Import(NodeLink& link, GrantRevision revision, const Grant& grant);
  void Release(const std::vector<Imported>& imports);
  // Publishes the routes of every table.
  client::RouteVersion PublishRoutes();
  std::shared_ptr<const client::Routes> BuildRoutes(const TableRecord& table);
  // Whose rows the routes of an open table lead to: its own.
  TableUid VersionOf(const TableRecord& table) const;

  // ---- reading ----
  void StartStep(const TableUid& uid, std::size_t loop);
  void Submit(TableLink& table, Loop& loop);
  void DrawRows(const TableLink& table, Loop& loop);
  // A layer of the step of this round is late, which hedges it; now and then it is cancelled.
  void BeLate(const TableUid& uid, std::size_t loop, std::uint64_t round, std::uint32_t layer);
  void Poll();
  void PollSoon();
  void PollForEver();
  void ReportHeat();
  void CountShared(TableLink& table);
  void Finish(TableLink& table, Loop& loop);
  void CountPause(TableLink& table);
  void Check(const TableLink& table, const Loop& loop, std::uint32_t layer, bool whole);

  Cluster* const cluster_;
  Process process_;
  const std::optional<FabricKind> forced_;
  Instant last_whole_read_{};
  std::unique_ptr<Life> life_;
};

}  // namespace engram::simulation
