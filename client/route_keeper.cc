#include "client/route_keeper.h"

#include <algorithm>
#include <set>
#include <span>
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

template <class See>
void ForEachRoute(const Routes& routes, See see) {
  for (std::uint32_t i = 0; i < routes.shards(); ++i) {
    for (const Route& route : routes.Candidates(ShardIndex(i))) see(ShardIndex(i), route);
  }
}

std::string Reason(FabricKind kind, const std::string& why) {
  return absl::StrCat(std::string(Name(kind)), ": ", why);
}

}  // namespace

void RouteKeeper::AddBoard(RouteBoard* board, const TableUid& uid, std::uint32_t shards) {
  Table& table = tables_[uid];
  table.shards = std::max(table.shards, shards);
  table.boards.push_back({board});
  Publish(table);
}

void RouteKeeper::RemoveBoard(RouteBoard* board) {
  for (auto& [uid, table] : tables_) {
    std::erase_if(table.boards, [&](const Board& other) { return other.board == board; });
  }
  std::erase_if(tables_, [](const auto& entry) {
    const Table& table = entry.second;
    return table.boards.empty() && table.routes->shards_served() == 0;
  });
}

void RouteKeeper::SetIncomplete(RouteBoard* board, bool incomplete) {
  for (auto& [uid, table] : tables_) {
    for (Board& other : table.boards) {
      if (other.board != board || other.incomplete == incomplete) continue;
      other.incomplete = incomplete;
      Publish(table);
    }
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
      Route route;
      route.region = *region;
      route.fabric = reach.fabric;
      route.path_class = ClassOf(session.opened.paths[path.path]);
      out->push_back({grant.shard.shard, route});
      continue;
    }
    const std::string why =
        Reason(session.opened.paths[path.path].fabric, std::string(region.status().message()));
    if (std::find(session.unreachable.begin(), session.unreachable.end(), why) ==
        session.unreachable.end())
      session.unreachable.push_back(why);
  }
}

void RouteKeeper::Cut(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  found->second.cut = true;
  for (auto& [uid, table] : tables_) Publish(table);
}

RouteVersion RouteKeeper::Change(const NodeId& node, GrantRevision revision,
                                 const std::vector<Grant>& granted,
                                 const std::vector<ShardKey>& withdrawn) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return options_.quiescence->Publish();
  Session& session = found->second;
  session.revision = revision;
  std::set<ShardKey> changed(withdrawn.begin(), withdrawn.end());
  // Of a shard that is granted twice the last counts.
  std::map<ShardKey, const Grant*> newest;
  for (const Grant& grant : granted) newest[grant.shard] = &grant;
  std::map<TableUid, Imports> coming;
  for (const auto& [shard, grant] : newest) {
    changed.insert(shard);
    ImportGrant(session, *grant, &coming[shard.table]);
  }
  for (const auto& [uid, imports] : coming) tables_[uid];
  // All tables: each says up to which revision of the session it goes.
  for (auto& [uid, table] : tables_) {
    const auto leaves = [&changed, &of = uid](ShardIndex shard) {
      return changed.contains({of, shard});
    };
    Imports left = Rebuild(table, node, leaves, coming[uid]);
    if (!left.empty()) session.leaving.emplace(revision, std::move(left));
  }
  return options_.quiescence->Publish();
}

void RouteKeeper::Release(const NodeId& node, GrantRevision revision) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  auto& leaving = found->second.leaving;
  const auto [begin, end] = leaving.equal_range(revision);
  for (auto held = begin; held != end; ++held) GiveBack(held->second);
  leaving.erase(begin, end);
}

RouteVersion RouteKeeper::Void(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return options_.quiescence->Publish();
  Session& session = found->second;
  for (auto& [uid, table] : tables_) {
    Imports left = Rebuild(table, node, [](ShardIndex) { return true; }, {});
    if (!left.empty()) session.leaving.emplace(session.revision, std::move(left));
  }
  return options_.quiescence->Publish();
}

void RouteKeeper::ReleaseAll(const NodeId& node) {
  const auto found = sessions_.find(node);
  if (found == sessions_.end()) return;
  const Session& session = found->second;
  for (const auto& [revision, imports] : session.leaving) GiveBack(imports);
  for (const Path& path : session.paths) {
    if (path.peer) options_.fabrics[path.fabric]->RemovePeer(*path.peer);
  }
  sessions_.erase(found);
}

void RouteKeeper::GiveBack(const Imports& imports) {
  for (const Import& import : imports) {
    options_.fabrics[import.route.fabric]->Release(import.route.region);
  }
}

Routes::Builder::Options RouteKeeper::OptionsFor(const Table& table, const Imports& coming) const {
  Routes::Builder::Options out;
  out.shards = std::max(table.shards, table.routes->shards());
  for (const Import& import : coming) out.shards = std::max(out.shards, import.shard.value() + 1);
  out.turn = options_.turn;
  out.incomplete = std::any_of(table.boards.begin(), table.boards.end(),
                               [](const Board& board) { return board.incomplete; });
  return out;
}

RouteKeeper::Imports RouteKeeper::Rebuild(Table& table, const NodeId& node, const Leave& leave,
                                          const Imports& coming) {
  const std::shared_ptr<const Routes> old = table.routes;
  const std::span<const RouteSession> before = old->sessions();
  std::size_t own = 0;  // the node's place in it
  while (own < before.size() && before[own].node != node) ++own;
  Imports left;
  std::vector<bool> stays(before.size());
  ForEachRoute(*old, [&](ShardIndex shard, const Route& route) {
    if (route.session == own && leave(shard)) {
      left.push_back({shard, route});
    } else {
      stays[route.session] = true;
    }
  });
  std::map<NodeId, std::uint16_t> numbers;
  if (!coming.empty()) numbers[node];
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (stays[i]) numbers[before[i].node];
  }

  Routes::Builder builder(OptionsFor(table, coming));
  for (auto& [id, number] : numbers) {
    const Session& session = sessions_.at(id);
    number = builder.AddSession(
        {id, session.opened.incarnation, session.revision, session.lease, session.cut});
  }
  std::vector<std::uint16_t> now(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (stays[i]) now[i] = numbers[before[i].node];
  }
  ForEachRoute(*old, [&](ShardIndex shard, const Route& route) {
    if (route.session != own || !leave(shard)) builder.Add(shard, now[route.session], route);
  });
  for (const Import& import : coming) builder.Add(import.shard, numbers[node], import.route);
  table.routes = builder.Build();
  for (const Board& board : table.boards) board.board->Publish(table.routes);
  return left;
}

void RouteKeeper::Publish(Table& table) {
  Rebuild(table, {}, [](ShardIndex) { return false; }, {});
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
