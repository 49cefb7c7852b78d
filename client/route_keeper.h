// What the grants of all read sessions of this process amount to: connects the fabrics to each
// node, imports the granted regions, and publishes the routes of every open table. Carries out what
// ClientSession asks for (ChangeRoutes, ReleaseRegions, VoidRoutes, ReleaseAll) in its order:
// routes go first, then, after quiescence, imports, then peers.
//
// Knows no stream and no thread. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/lease.h"
#include "client/quiescence.h"
#include "client/route_board.h"
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
  // twice has two boards.
  void AddBoard(RouteBoard* board, const TableUid& table, std::uint32_t shards);
  void RemoveBoard(RouteBoard* board);
  // The board's readers wait for shards that nobody serves (Routes::incomplete).
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
  // One path to one shard. Kept for as long as the shard can be read, a million of them perhaps.
  struct Import {
    ShardIndex shard;
    std::uint32_t path = 0;  // of the session; names fabric and peer
    std::uint64_t address = 0, length = 0, key = 0;
  };
  static_assert(sizeof(Import) == 32);
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
    std::map<TableUid, Imports> routed;  // in order of the shards
    std::multimap<GrantRevision, Imports> leaving;
  };
  struct Board {
    RouteBoard* board = nullptr;
    TableUid table;
    std::uint32_t shards = 0;
    bool incomplete = false;
  };

  void ReachPath(const NodeId& node, Session& session, std::uint32_t path, Instant deadline);
  void ImportGrant(Session& session, const Grant& grant, Imports* out);
  // Takes those shards of the table out of the routes.
  static void Leave(Session& session, const TableUid& table, const std::set<ShardIndex>& shards);
  static fabric::RemoteRegion RegionOf(const Session& session, const Import& import);
  void GiveBack(const Session& session, const Imports& imports);
  void Publish(const Board& board);
  RouteVersion PublishAll();

  const Options options_;
  std::vector<Board> boards_;
  std::map<NodeId, Session> sessions_;
};

}  // namespace engram::client
