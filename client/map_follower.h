// Keeps the client's ShardMap up to date from WatchMap (ARCHITECTURE section 4, rule 5): applies
// deltas, asks for a snapshot on a gap, and keeps the last map while the controller is away. State
// machine without threads or sockets. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/shard_map.h"

namespace engram::client {

class MapFollower {
 public:
  // Numbers the subscriptions from 1: events of an earlier stream are ignored.
  using Subscription = StrongId<struct SubscriptionTag>;

  // ---- events ----
  struct Start {};
  struct Timer {};
  struct DeltaArrived {
    Subscription subscription;
    MapDelta delta;
  };
  struct StreamLost {
    Subscription subscription;
  };
  using Event = std::variant<Start, Timer, DeltaArrived, StreamLost>;

  // ---- actions ----
  // Open WatchMap(from), closing the subscription before it. from = 0 asks for a snapshot.
  struct Subscribe {
    Subscription subscription;
    Epoch from;
  };
  struct UseMap {
    std::shared_ptr<const ShardMap> map;
  };
  using Action = std::variant<Subscribe, UseMap>;

  struct Options {
    Duration backoff_min = std::chrono::milliseconds(50);
    Duration backoff_max = std::chrono::seconds(1);
  };
  MapFollower() : MapFollower(Options()) {}
  explicit MapFollower(Options options) : options_(options), map_(ShardMap::Empty()) {}

  std::vector<Action> OnEvent(Instant now, const Event& event);
  std::optional<Instant> NextTimer() const { return retry_at_; }
  const std::shared_ptr<const ShardMap>& map() const { return map_; }
  bool connected() const { return connected_; }

 private:
  void Ask(Epoch from, std::vector<Action>& out);
  void Apply(Instant now, const DeltaArrived& event, std::vector<Action>& out);
  void RetryLater(Instant now);

  const Options options_;
  std::shared_ptr<const ShardMap> map_;
  Subscription subscription_;
  bool connected_ = false;
  Duration backoff_{};
  std::optional<Instant> retry_at_;
};

}  // namespace engram::client
