// How every shard of one table can be read right now: an immutable snapshot, shard -> candidate
// routes in preference order. It is built off the hot path from the grants of the read sessions,
// and published through a RouteBoard (client/route_board.h) to the pollers.
//
// A snapshot never changes, so a reader that pinned one needs no lock; what makes its routes go
// away safely is the board's quiescence and the leases of the sessions. Immutable: Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/lease.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "fabric/fabric.h"

namespace engram::client {

// Cheapest first (ARCHITECTURE section 3): the order in which a reader prefers the paths.
enum class PathClass : std::uint8_t { kMapped = 0, kOffloaded = 1, kStream = 2, kEmulated = 3 };
PathClass ClassOf(const PathAddress& path);

// The session that some routes of a snapshot came from.
struct RouteSession {
  NodeId node;
  Incarnation incarnation;
  GrantRevision revision;  // every revision of the session up to this one is in the snapshot
  std::shared_ptr<const ReadLease> lease;
  bool cut = false;  // its stream broke: routes of other sessions are preferred
};

// One way to one shard.
struct Route {
  fabric::RemoteRegion region;  // as this process sees it
  std::uint16_t session = 0;    // index into Routes::sessions()
  std::uint16_t group = 0;      // index into Routes::groups()
  std::uint8_t fabric = 0;      // index into the reader's list of fabrics
  PathClass path_class = PathClass::kMapped;

  // A batch ORs them to know its leases.
  std::uint64_t session_bit() const { return std::uint64_t{1} << (session % 64); }
};
static_assert(sizeof(Route) == 40);

// Reads that travel together: one node over one fabric; mapped reads of all nodes are one group,
// because no message is sent.
struct RouteGroup {
  std::uint8_t fabric = 0;
  PathClass path_class = PathClass::kMapped;
  fabric::PeerId peer;
};

class Routes {
 public:
  class Builder;

  std::uint32_t shards() const { return static_cast<std::uint32_t>(first_.size() - 1); }
  // Null when nobody serves the shard. REQUIRES: shard < shards().
  const Route* Best(ShardIndex shard) const {
    const std::uint32_t* const first = first_.data() + shard.value();
    return first[0] == first[1] ? nullptr : routes_.data() + first[0];
  }
  // All of them, best first.
  std::span<const Route> Candidates(ShardIndex shard) const {
    return {routes_.data() + first_[shard.value()],
            first_[shard.value() + 1] - first_[shard.value()]};
  }
  std::span<const RouteSession> sessions() const { return sessions_; }
  std::span<const RouteGroup> groups() const { return groups_; }
  std::uint32_t shards_served() const { return shards_served_; }
  // Sessions that may serve more shards are being opened: readers wait instead of failing.
  bool incomplete() const { return incomplete_; }

  // True when the leases of all sessions in `session_bits` are valid at `now`.
  bool LeasesValid(std::uint64_t session_bits, Instant now) const;

 private:
  Routes() = default;
  std::uint32_t shards_served_ = 0;
  bool incomplete_ = false;
  std::vector<std::uint32_t> first_;  // one more entry than shards
  std::vector<Route> routes_;
  std::vector<RouteSession> sessions_;
  std::vector<RouteGroup> groups_;
};

// Thread-compatible.
class Routes::Builder {
 public:
  struct Options {
    std::uint32_t shards = 0;
    // Equal candidates of a shard are turned by (shard + turn), so that clients with different
    // turns spread over the replicas.
    std::uint32_t turn = 0;
    std::optional<FabricKind> forced;  // only paths of this fabric
    bool incomplete = false;
  };
  explicit Builder(const Options& options) : options_(options) {}

  // Returns the session's index. At most 65,535 sessions.
  std::uint16_t AddSession(RouteSession session);
  // `fabric` is the index in the readers' list of fabrics. Ignored when another fabric is forced or
  // the shard is not one of the table.
  void Add(ShardIndex shard, std::uint16_t session, std::uint8_t fabric, const PathAddress& path,
           const fabric::RemoteRegion& region);
  // As another snapshot has it, there perhaps with another number of its session.
  void Add(ShardIndex shard, std::uint16_t session, const Route& route);
  std::shared_ptr<const Routes> Build();

 private:
  struct Entry {
    std::uint32_t shard;
    Route route;
  };
  std::uint16_t GroupOf(const Route& route);

  Options options_;
  std::vector<Entry> entries_;
  std::vector<RouteSession> sessions_;
  std::vector<RouteGroup> groups_;
};

}  // namespace engram::client
