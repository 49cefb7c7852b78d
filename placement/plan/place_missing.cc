// The copies that a table lacks. First the fewest nodes that could take them, then one by one, the
// largest first, so that small ones fill the gaps.
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "placement/plan/goals.h"

namespace engram::placement {
namespace {

// The node that a copy goes to next: the least loaded one, or one of the domain with the most room.
// The first spreads reads; the second finds a place for everything whenever shards are of one size
// and there is one.
enum class Preference { kBalance, kRoom };

using Key = std::tuple<double, double, double, std::uint32_t>;

struct Site {
  std::uint32_t node = 0;
  std::uint32_t queue = 0;  // of its domain
  std::int64_t free = 0;
  double load = 0;
  double bytes = 0;  // of the table
};

// The chosen nodes, by domain, in the order in which they are preferred.
class Sites {
 public:
  Sites(const PlanState& state, std::uint32_t table, std::span<const std::uint32_t> chosen,
        Preference preference, std::uint64_t smallest)
      : state_(state),
        preference_(preference),
        hot_(state.table(table).load > 0),
        smallest_(static_cast<std::int64_t>(smallest)) {
    std::map<std::uint32_t, std::uint32_t> queues;
    for (std::uint32_t node : chosen) {
      const NodeState& from = state.nodes()[node];
      const auto next = static_cast<std::uint32_t>(queues.size());
      const std::uint32_t queue = queues.emplace(from.domain, next).first->second;
      if (queue == queues_.size()) queues_.push_back({from.domain, 0, {}});
      sites_.push_back(
          {node, queue, from.free, from.load, static_cast<double>(state.BytesOn(table, node))});
      if (from.free < smallest_) continue;
      queues_[queue].room += from.free;
      queues_[queue].sites.emplace(KeyOf(sites_.back()), sites_.size() - 1);
    }
    for (std::uint32_t i = 0; i < queues_.size(); ++i) Enlist(i);
  }

  // The site for one more copy of the shard; null: none.
  const Site* Find(std::uint32_t id, const std::vector<std::uint32_t>& taken) const {
    const auto bytes = static_cast<std::int64_t>(state_.shard(id).bytes);
    const std::vector<std::uint32_t>& leaving = state_.shard_view(id).leaving;
    for (const auto& [key, index] : order_) {
      const Queue& queue = queues_[index];
      if (std::find(taken.begin(), taken.end(), queue.domain) != taken.end()) continue;
      for (const auto& [site_key, at] : queue.sites) {
        const Site& site = sites_[at];
        if (site.free < bytes) continue;
        if (std::find(leaving.begin(), leaving.end(), site.node) != leaving.end()) continue;
        return &site;
      }
    }
    return nullptr;
  }

  void Use(const Site& chosen, std::uint64_t bytes, double load) {
    Site& site = sites_[static_cast<std::size_t>(&chosen - sites_.data())];
    Queue& queue = queues_[site.queue];
    order_.erase({QueueKey(queue), site.queue});
    auto entry = queue.sites.extract(
        queue.sites.find({KeyOf(site), static_cast<std::size_t>(&chosen - sites_.data())}));
    queue.room -= site.free;
    site.free -= static_cast<std::int64_t>(bytes);
    site.bytes += static_cast<double>(bytes);
    site.load += load;
    if (site.free >= smallest_) {
      queue.room += site.free;
      entry.value().first = KeyOf(site);
      queue.sites.insert(std::move(entry));
    }
    Enlist(site.queue);
  }

 private:
  struct Queue {
    std::uint32_t domain = 0;
    std::int64_t room = 0;
    std::set<std::pair<Key, std::size_t>> sites;
  };

  Key KeyOf(const Site& site) const {
    const NodeState& node = state_.nodes()[site.node];
    const auto free = static_cast<double>(site.free);
    if (preference_ == Preference::kRoom) return {-free, 0, 0, node.rank};
    const double use = site.load / node.strength, bytes = site.bytes / node.strength;
    return hot_ ? Key{use, -node.strength, bytes, node.rank} : Key{bytes, use, -free, node.rank};
  }
  Key QueueKey(const Queue& queue) const {
    if (queue.sites.empty()) return {};
    const Key& first = queue.sites.begin()->first;
    if (preference_ == Preference::kBalance) return first;
    return {-static_cast<double>(queue.room), 0, 0, std::get<3>(first)};
  }
  void Enlist(std::uint32_t index) {
    if (!queues_[index].sites.empty()) order_.emplace(QueueKey(queues_[index]), index);
  }

  const PlanState& state_;
  const Preference preference_;
  const bool hot_;
  const std::int64_t smallest_;
  std::vector<Site> sites_;
  std::vector<Queue> queues_;
  std::set<std::pair<Key, std::uint32_t>> order_;
};

class TableFiller {
 public:
  TableFiller(PlanState& state, std::uint32_t table) : state_(state), table_(table) {
    lacking_ = LackingCopies(state, table);
    for (const Lacking& one : lacking_) {
      const std::uint64_t bytes = state.shard(one.shard).bytes;
      once_ += bytes;
      wanted_ += bytes * one.copies;
      smallest_ = std::min(smallest_, bytes);
    }
    std::stable_sort(lacking_.begin(), lacking_.end(), [&](const Lacking& a, const Lacking& b) {
      const ShardState &x = state.shard(a.shard), &y = state.shard(b.shard);
      return std::tie(y.bytes, y.load) < std::tie(x.bytes, x.load);
    });
    OrderNodes();
  }

  bool nothing() const { return lacking_.empty(); }

  // On the fewest nodes.
  bool Whole() {
    std::vector<std::int64_t> room(state_.domains(), 0);
    std::int64_t usable = 0;
    double strength = standing_strength_;
    std::size_t again = holders_;
    for (std::size_t count = 1; count <= limit_; ++count) {
      const NodeState& node = state_.nodes()[order_[count - 1]];
      usable -= std::min<std::int64_t>(room[node.domain], static_cast<std::int64_t>(once_));
      room[node.domain] += std::max<std::int64_t>(0, node.free);
      usable += std::min<std::int64_t>(room[node.domain], static_cast<std::int64_t>(once_));
      strength += node.strength;
      if (count < again && count < limit_) continue;
      if (usable < static_cast<std::int64_t>(wanted_)) continue;
      const bool strong = strength * state_.limits().target_load >= state_.table(table_).load;
      if (!strong && count < limit_) continue;
      const std::span<const std::uint32_t> chosen(order_.data(), count);
      for (Preference preference : {Preference::kBalance, Preference::kRoom}) {
        if (Assign(chosen, preference, true)) return true;
      }
      again = count + 1 + count / 16;  // trying costs as much as placing
    }
    return false;
  }

  // Whatever finds a place; returns how many copies did not.
  std::uint32_t Some() {
    const std::span<const std::uint32_t> chosen(order_.data(), limit_);
    Assign(chosen, Preference::kRoom, false);
    return unplaced_;
  }

 private:
  // Holders of the table first, then by what each adds to the usable room.
  void OrderNodes() {
    const std::vector<NodeState>& nodes = state_.nodes();
    std::vector<std::int64_t> room(state_.domains(), 0);
    for (std::uint32_t node : state_.table(table_).members) {
      if (!nodes[node].takes()) {
        ++standing_;
        standing_strength_ += nodes[node].strength;
        continue;
      }
      order_.push_back(node);
      room[nodes[node].domain] += std::max<std::int64_t>(0, nodes[node].free);
    }
    holders_ = order_.size();
    using Entry = std::tuple<std::int64_t, int, std::int64_t, std::uint32_t, std::uint32_t>;
    const auto entry = [&](std::uint32_t node) {
      const NodeState& one = nodes[node];
      const auto once = static_cast<std::int64_t>(once_);
      const std::int64_t before = std::min(room[one.domain], once);
      const std::int64_t after = std::min(room[one.domain] + one.free, once);
      return Entry{after - before, -static_cast<int>(std::min(64.0, one.Use() * 8)), one.free,
                   ~one.rank, node};
    };
    std::priority_queue<Entry> rest;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      if (!nodes[node].takes() || nodes[node].free <= 0 || state_.IsMember(table_, node)) continue;
      rest.push(entry(node));
    }
    while (!rest.empty()) {
      const Entry top = rest.top();
      rest.pop();
      // What a node adds only shrinks while others are taken.
      const Entry now = entry(std::get<4>(top));
      if (now < top) {
        rest.push(now);
        continue;
      }
      order_.push_back(std::get<4>(top));
      room[nodes[order_.back()].domain] += nodes[order_.back()].free;
    }
    const std::size_t most = state_.table_view(table_).max_nodes;
    limit_ = order_.size();
    if (most != 0) limit_ = std::min(limit_, std::max(holders_, most - std::min(most, standing_)));
  }

  bool Assign(std::span<const std::uint32_t> chosen, Preference preference, bool whole) {
    Sites sites(state_, table_, chosen, preference, smallest_);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> placed;
    const std::uint32_t replicas = state_.table_view(table_).replicas;
    unplaced_ = 0;
    for (const Lacking& one : lacking_) {
      const ShardState& shard = state_.shard(one.shard);
      std::vector<std::uint32_t> taken;
      for (std::uint32_t node : shard.nodes) {
        if (state_.nodes()[node].stays()) taken.push_back(state_.nodes()[node].domain);
      }
      for (std::uint32_t copy = 0; copy < one.copies; ++copy) {
        const Site* site = sites.Find(one.shard, taken);
        if (site == nullptr) {
          if (whole) return false;
          unplaced_ += one.copies - copy;
          break;
        }
        placed.emplace_back(one.shard, site->node);
        taken.push_back(state_.nodes()[site->node].domain);
        sites.Use(*site, shard.bytes, shard.load / std::max<std::uint32_t>(1, replicas));
      }
    }
    for (const auto& [id, node] : placed) state_.Put(id, node, CauseOf(id));
    return true;
  }

  StepCause CauseOf(std::uint32_t id) const {
    const ShardState& shard = state_.shard(id);
    for (std::uint32_t node : shard.nodes) {
      if (state_.nodes()[node].mode == NodeMode::kDraining) return {PlanGoal::kDrain, node, 0, 0};
    }
    return {PlanGoal::kReplication, 0, static_cast<double>(state_.Settled(shard)),
            static_cast<double>(state_.table_view(table_).replicas)};
  }

  PlanState& state_;
  const std::uint32_t table_;
  std::vector<Lacking> lacking_;
  std::uint64_t once_ = 0, wanted_ = 0, smallest_ = ~std::uint64_t{0} >> 1;
  std::vector<std::uint32_t> order_;
  std::size_t holders_ = 0;
  std::size_t standing_ = 0;  // holders that take nothing
  double standing_strength_ = 0;
  std::size_t limit_ = 0;
  std::uint32_t unplaced_ = 0;
};

}  // namespace

std::vector<Lacking> LackingCopies(const PlanState& state, std::uint32_t table) {
  std::vector<Lacking> lacking;
  const std::uint32_t replicas = state.table_view(table).replicas;
  for (std::uint32_t id = state.table(table).first; id < state.table(table).end; ++id) {
    const ShardState& shard = state.shard(id);
    if (shard.moving) continue;
    const std::uint32_t settled = state.Settled(shard);
    if (settled < replicas) lacking.push_back({id, replicas - settled});
  }
  return lacking;
}

bool PlaceWhole(PlanState& state, std::uint32_t table) {
  TableFiller filler(state, table);
  return filler.nothing() || filler.Whole();
}

void PlaceMissing(PlanState& state, std::uint32_t table) {
  TableFiller filler(state, table);
  if (filler.nothing() || filler.Whole()) return;
  const std::uint32_t missing = filler.Some();
  if (missing == 0) return;
  const PlanTable& view = state.table_view(table);
  state.Unmet(absl::StrCat(
      "table ", view.name.Full(), " lacks ", missing, " copies: no node ",
      "has room for them in a failure domain of their own",
      view.max_nodes == 0 ? "" : absl::StrCat(" (it may use ", view.max_nodes, " nodes)"),
      "; start more pool nodes or give them more memory"));
}

}  // namespace engram::placement
