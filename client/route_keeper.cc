#include "client/route_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::client {
namespace {

// The fabric's address of a peer and of a path are words of the session.
fabric::PeerAddress AddressOf(const NodeId& node, const SessionOpened& opened,
                              const PathAddress& path) {
  return {path, opened.token, node, opened.incarnation};
}

// Two libfabric providers do not understand each other: an ofi address begins with "PROVIDER!".
bool Speaks(const fabric::Fabric& fabric, const PathAddress& path) {
  const fabric::FabricInfo& info = fabric.info();
  if (info.kind != path.fabric) return false;
  return info.kind != FabricKind::kOfi || path.address.rfind(info.provider + "!", 0) == 0;
}

std::string Reason(FabricKind kind, const std::string& why) {
  return absl::StrCat(std::string(Name(kind)), ": ", why);
}

}  // namespace

void RouteKeeper::AddBoard(RouteBoard* board, const TableUid& table, std::uint32_t shards) {
  boards_.push_back({board, table, shards, /*incomplete=*/true});
  Publish(boards_.back());
}

void RouteKeeper::RemoveBoard(RouteBoard* board) {
  std::erase_if(boards_, [&](const Board& other) { return other.board == board; });
}

void RouteKeeper::SetIncomplete(RouteBoard* board, bool incomplete) {
  for (Board& other : boards_) {
    if (other.board != board || other.incomplete == incomplete) continue;
    other.incomplete = incomplete;
    Publish(other);
  }
}

void RouteKeeper::Begin(const NodeId& node, const SessionOpened& opened,
                        std::shared_ptr<const ReadLease> lease, Instant deadline) {
  Session& session = sessions_[node];
  session = Session();
  session.opened = opened;
  session.lease = std::move(lease);
  session.paths.resize(opened.paths.size());
  for (std::uint32_t i = 0; i < opened.paths.size(); ++i) ReachPath(node, session, i, deadline);
}

void RouteKeeper::Reach(const NodeId& node, const std::vector<NumberedPath>& paths,
                        Instant deadline) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  for (const NumberedPath& path : paths) {
    const std::size_t most = std::max<std::size_t>(session.paths.size(), path.path + 1);
    session.paths.resize(most);
    session.opened.paths.resize(most);
    if (session.paths[path.path].peer) continue;
    session.opened.paths[path.path] = path.address;
    ReachPath(node, session, path.path, deadline);
  }
}

void RouteKeeper::ReachPath(const NodeId& node, Session& session, std::uint32_t number,
                            Instant deadline) {
  const PathAddress& path = session.opened.paths[number];
  if (options_.forced && *options_.forced != path.fabric) return;
  const auto usable =
      std::find_if(options_.fabrics.begin(), options_.fabrics.end(),
                   [&](const fabric::Fabric* fabric) { return Speaks(*fabric, path); });
  if (usable == options_.fabrics.end()) {
    session.unreachable.push_back(Reason(path.fabric, "not available in this process"));
    return;
  }
  Path& reach = session.paths[number];
  reach.fabric = static_cast<std::uint8_t>(usable - options_.fabrics.begin());
  auto peer = (*usable)->AddPeer(AddressOf(node, session.opened, path), deadline);
  if (peer.ok()) {
    reach.peer = *peer;
  } else {
    session.unreachable.push_back(Reason(path.fabric, std::string(peer.status().message())));
  }
}

void RouteKeeper::ImportGrant(Session& session, const Grant& grant, Imports* out) {
  for (const GrantPath& path : grant.paths) {
    if (path.path >= session.paths.size() || !session.paths[path.path].peer) continue;
    const Path& reach = session.paths[path.path];
    auto region =
        options_.fabrics[reach.fabric]->Import({*reach.peer, path.address, path.length, path.key});
    if (region.ok()) {
      out->push_back({grant.shard.shard, path.path, region->address, region->length, region->key});
      continue;
    }
    const std::string why =
        Reason(session.opened.paths[path.path].fabric, std::string(region.status().message()));
    if (std::find(session.unreachable.begin(), session.unreachable.end(), why) ==
        session.unreachable.end())
      session.unreachable.push_back(why);
  }
}

void RouteKeeper::Leave(Session& session, const TableUid& table,
                        const std::set<ShardIndex>& shards) {
  const auto routed = session.routed.find(table);
  if (routed == session.routed.end()) return;
  Imports& imports = routed->second;
  const auto left =
      std::stable_partition(imports.begin(), imports.end(),
                            [&](const Import& import) { return !shards.contains(import.shard); });
  if (left == imports.end()) return;
  session.leaving.emplace(session.revision, Imports(left, imports.end()));
  imports.erase(left, imports.end());
  if (imports.empty()) session.routed.erase(routed);
}

void RouteKeeper::Cut(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  found->second.cut = true;
  PublishAll();
}

RouteVersion RouteKeeper::Change(const NodeId& node, GrantRevision revision,
                                 const std::vector<Grant>& granted,
                                 const std::vector<ShardKey>& withdrawn) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return options_.quiescence->Publish();
  Session& session = found->second;
  session.revision = revision;
  std::map<TableUid, std::set<ShardIndex>> changed;
  for (const ShardKey& shard : withdrawn) changed[shard.table].insert(shard.shard);
  for (const Grant& grant : granted) changed[grant.shard.table].insert(grant.shard.shard);
  for (const auto& [table, shards] : changed) Leave(session, table, shards);
  // Of a shard that is granted twice the last counts.
  std::map<ShardKey, const Grant*> newest;
  for (const Grant& grant : granted) newest[grant.shard] = &grant;
  for (const auto& [shard, grant] : newest) {
    ImportGrant(session, *grant, &session.routed[shard.table]);
  }
  for (const auto& [table, shards] : changed) {
    const auto routed = session.routed.find(table);
    if (routed == session.routed.end()) continue;
    routed->second.shrink_to_fit();
    std::stable_sort(routed->second.begin(), routed->second.end(),
                     [](const Import& a, const Import& b) { return a.shard < b.shard; });
  }
  return PublishAll();
}

void RouteKeeper::Release(const NodeId& node, GrantRevision revision) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  auto& leaving = found->second.leaving;
  const auto [begin, end] = leaving.equal_range(revision);
  for (auto held = begin; held != end; ++held) GiveBack(found->second, held->second);
  leaving.erase(begin, end);
}

RouteVersion RouteKeeper::Void(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return options_.quiescence->Publish();
  Session& session = found->second;
  for (auto& [table, imports] : session.routed)
    session.leaving.emplace(session.revision, std::move(imports));
  session.routed.clear();
  return PublishAll();
}

void RouteKeeper::ReleaseAll(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  const Session& session = found->second;
  for (const auto& [revision, imports] : session.leaving) GiveBack(session, imports);
  for (const auto& [table, imports] : session.routed) GiveBack(session, imports);
  for (const Path& path : session.paths) {
    if (path.peer) options_.fabrics[path.fabric]->RemovePeer(*path.peer);
  }
  sessions_.erase(found);
}

fabric::RemoteRegion RouteKeeper::RegionOf(const Session& session, const Import& import) {
  return {*session.paths[import.path].peer, import.address, import.length, import.key};
}

void RouteKeeper::GiveBack(const Session& session, const Imports& imports) {
  for (const Import& import : imports) {
    const std::uint8_t fabric = session.paths[import.path].fabric;
    options_.fabrics[fabric]->Release(RegionOf(session, import));
  }
}

void RouteKeeper::Publish(const Board& board) {
  const TableUid& uid = board.table;
  Routes::Builder::Options options;
  options.shards = board.shards;
  options.turn = options_.turn;
  options.forced = options_.forced;
  options.incomplete = board.incomplete;
  Routes::Builder builder(options);
  for (const auto& [node, session] : sessions_) {
    const auto held = session.routed.find(uid);
    if (held == session.routed.end()) continue;
    const std::uint16_t index = builder.AddSession(
        {node, session.opened.incarnation, session.revision, session.lease, session.cut});
    for (const Import& import : held->second) {
      builder.Add(import.shard, index, session.paths[import.path].fabric,
                  session.opened.paths[import.path], RegionOf(session, import));
    }
  }
  board.board->Publish(builder.Build());
}

RouteVersion RouteKeeper::PublishAll() {
  for (const Board& board : boards_) Publish(board);
  // The version after the last board's: past it, no reader of any table uses what was replaced.
  return options_.quiescence->Publish();
}

std::vector<FabricKind> RouteKeeper::Fabrics(const NodeId& node) const {
  std::vector<FabricKind> out;
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return out;
  for (std::size_t i = 0; i < found->second.paths.size(); ++i) {
    if (found->second.paths[i].peer) out.push_back(found->second.opened.paths[i].fabric);
  }
  return out;
}

std::vector<std::string> RouteKeeper::Unreachable(const NodeId& node) const {
  const auto found = sessions_.find(node);
  return found == sessions_.end() ? std::vector<std::string>() : found->second.unreachable;
}

bool RouteKeeper::Granted(const NodeId& node) const {
  const auto found = sessions_.find(node);
  return found != sessions_.end() && found->second.revision.value() > 0;
}

}  // namespace engram::client
