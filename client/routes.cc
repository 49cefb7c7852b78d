#include "client/routes.h"

#include <algorithm>
#include <tuple>

namespace engram::client {

PathClass ClassOf(const PathAddress& path) {
  switch (path.fabric) {
    case FabricKind::kMapped:
    case FabricKind::kLoopback: return PathClass::kMapped;
    case FabricKind::kStream: return PathClass::kStream;
    case FabricKind::kOfi:
    case FabricKind::kUcx: break;
  }
  return path.one_sided && path.offloaded ? PathClass::kOffloaded : PathClass::kEmulated;
}

bool Routes::LeasesValid(std::uint64_t session_bits, Instant now) const {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    if ((session_bits >> (i % 64) & 1) != 0 && !sessions_[i].lease->ValidAt(now)) return false;
  }
  return true;
}

std::uint16_t Routes::Builder::AddSession(RouteSession session) {
  sessions_.push_back(std::move(session));
  return static_cast<std::uint16_t>(sessions_.size() - 1);
}

void Routes::Builder::Add(ShardIndex shard, std::uint16_t session, std::uint8_t fabric,
                          const PathAddress& path, const fabric::RemoteRegion& region) {
  if (shard.value() >= options_.shards) return;
  if (options_.forced && *options_.forced != path.fabric) return;
  Route route;
  route.region = region;
  route.fabric = fabric;
  route.path_class = ClassOf(path);
  Add(shard, session, route);
}

void Routes::Builder::Add(ShardIndex shard, std::uint16_t session, const Route& route) {
  Entry& entry = entries_.emplace_back(Entry{shard.value(), route});
  entry.route.session = session;
  entry.route.group = GroupOf(route);
}

std::uint16_t Routes::Builder::GroupOf(const Route& route) {
  const bool mapped = route.path_class == PathClass::kMapped;
  const fabric::PeerId peer = mapped ? fabric::PeerId() : route.region.peer;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].fabric == route.fabric && groups_[i].peer == peer)
      return static_cast<std::uint16_t>(i);
  }
  groups_.push_back({route.fabric, route.path_class, peer});
  return static_cast<std::uint16_t>(groups_.size() - 1);
}

std::shared_ptr<const Routes> Routes::Builder::Build() {
  const auto rank = [this](const Entry& entry) {
    return std::tuple(entry.shard, sessions_[entry.route.session].cut, entry.route.path_class);
  };
  // Whatever the order of the entries was, equal candidates are turned from the same one.
  const auto place = [&](const Entry& entry) {
    const Route& route = entry.route;
    return std::tuple_cat(rank(entry), std::tuple(route.session, route.fabric, route.region.peer));
  };
  std::stable_sort(entries_.begin(), entries_.end(),
                   [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
  std::vector<std::size_t> ends;  // of runs of equal candidates
  for (std::size_t i = 1; i <= entries_.size(); ++i) {
    if (i == entries_.size() || rank(entries_[i]) != rank(entries_[i - 1])) ends.push_back(i);
  }
  std::shared_ptr<Routes> out(new Routes());
  out->incomplete_ = options_.incomplete;
  out->sessions_ = std::move(sessions_);
  out->groups_ = std::move(groups_);
  out->first_.assign(options_.shards + 1, 0);
  out->routes_.resize(entries_.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    const Entry& head = entries_[begin];
    const std::size_t turn = (head.shard + options_.turn) % (end - begin);
    for (std::size_t i = begin; i < end; ++i)
      out->routes_[begin + (i - begin + turn) % (end - begin)] = entries_[i].route;
    out->first_[head.shard + 1] = static_cast<std::uint32_t>(end);
    begin = end;
  }
  for (std::uint32_t shard = 0; shard < options_.shards; ++shard) {
    out->first_[shard + 1] = std::max(out->first_[shard + 1], out->first_[shard]);
    out->shards_served_ += out->first_[shard + 1] > out->first_[shard];
  }
  return out;
}

}  // namespace engram::client
