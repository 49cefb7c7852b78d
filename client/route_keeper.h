// What the grants of all read sessions of this process amount to: connects the fabrics to each
// node, imports the granted regions, and publishes the routes of every open table. Carries out what
// ClientSession asks for (ChangeRoutes, ReleaseRegions, VoidRoutes, ReleaseAll) in its order:
// routes go first, then, after quiescence, imports, then peers.
//
// Knows no stream and no thread. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/lease.h"
#include "client/quiescence.h"
#include "client/route_board.h"
#include "client/routes.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "fabric/fabric.h"

namespace engram::client {

class RouteKeeper {
 public:
  struct Options {
    Quiescence* quiescence = nullptr;      // outlives the keeper
    std::vector<fabric::Fabric*> fabrics;  // the readers' list, in their order
    std::optional<FabricKind> forced;      // only paths of this fabric
    std::uint32_t turn = 0;                // Routes::Builder::Options::turn
  };
  explicit RouteKeeper(Options options) : options_(std::move(options)) {}

  // Publishes the routes of `table` on `board` from now on until RemoveBoard. A table that is open
  // twice has two boards, on which the same is published.
  void AddBoard(RouteBoard* board, const TableUid& table, std::uint32_t shards);
  void RemoveBoard(RouteBoard* board);
  // The board's readers wait for shards that nobody serves (Routes::incomplete), and so do those of
  // the table's other boards.
  void SetIncomplete(RouteBoard* board, bool incomplete);

  // A session was opened: reaches its node by every path that works from here, before `deadline`.
  void Begin(const NodeId& node, const SessionOpened& opened,
             std::shared_ptr<const ReadLease> lease, Instant deadline);
  // The node opened more paths.
  void Reach(const NodeId& node, const std::vector<NumberedPath>& paths, Instant deadline);
  // The session's stream broke: its routes come after all others.
  void Cut(const NodeId& node);
  // Imports and routes `granted` (in place of what was routed of the shard before), takes
  // `withdrawn` out of the routes, publishes. Readers of the returned version use the new routes.
  RouteVersion Change(const NodeId& node, GrantRevision revision, const std::vector<Grant>& granted,
                      const std::vector<ShardKey>& withdrawn);
  // Gives back the imports that Change(revision) took out of the routes.
  void Release(const NodeId& node, GrantRevision revision);
  // Takes everything of the node out of the routes.
  RouteVersion Void(const NodeId& node);
  // Gives back all imports and peers of the node. REQUIRES: Void, then quiescence.
  void ReleaseAll(const NodeId& node);

  // By which fabrics the node's rows can be read, and why not by the others; for people.
  std::vector<FabricKind> Fabrics(const NodeId& node) const;
  std::vector<std::string> Unreachable(const NodeId& node) const;
  bool Granted(const NodeId& node) const;

 private:
  // One path to one shard that is not in the routes: not yet, or not any more.
  struct Import {
    ShardIndex shard;
    Route route;  // without session and group
  };
  using Imports = std::vector<Import>;
  struct Path {
    std::uint8_t fabric = 0;
    std::optional<fabric::PeerId> peer;
  };
  struct Session {
    SessionOpened opened;
    std::shared_ptr<const ReadLease> lease;
    GrantRevision revision;
    bool cut = false;
    std::vector<Path> paths;  // as opened.paths, which grows with Reach
    std::vector<std::string> unreachable;
    std::multimap<GrantRevision, Imports> leaving;
  };
  struct Board {
    RouteBoard* board = nullptr;
    bool incomplete = true;
  };
  struct Table {
    std::uint32_t shards = 0;  // at least
    std::vector<Board> boards;
    // Everything that is imported and not leaving, a million routes perhaps: kept nowhere else.
    std::shared_ptr<const Routes> routes = Routes::Builder({}).Build();
  };

  void ReachPath(const NodeId& node, Session& session, std::uint32_t path, Instant deadline);
  void ImportGrant(Session& session, const Grant& grant, Imports* out);
  // Makes the table's routes anew, without those of `node` to shards that `leave`, with `coming` of
  // it, and publishes them. Returns what left.
  using Leave = std::function<bool(ShardIndex)>;
  Imports Rebuild(Table& table, const NodeId& node, const Leave& leave, const Imports& coming);
  void Publish(Table& table);
  Routes::Builder::Options OptionsFor(const Table& table, const Imports& coming) const;
  void GiveBack(const Imports& imports);

  const Options options_;
  std::map<TableUid, Table> tables_;
  std::map<NodeId, Session> sessions_;
};

}  // namespace engram::client
