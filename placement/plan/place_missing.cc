// The copies that a table lacks. First the fastest tiers in which all of them fit, of those the
// fewest nodes, then one by one, the largest first, so that small ones fill the gaps, each to the
// fastest tier that is left.
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

using Key = std::tuple<double, double, double, double, std::uint32_t>;

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
        const std::uint32_t owner = state_.nodes()[site.node].owner;
        const auto is_here = [&](std::uint32_t one) { return state_.nodes()[one].owner == owner; };
        if (std::any_of(leaving.begin(), leaving.end(), is_here)) continue;
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
    const auto tier = static_cast<double>(node.tier);
    if (preference_ == Preference::kRoom) return {tier, -free, 0, 0, node.rank};
    const double use = site.load / node.strength, bytes = site.bytes / node.strength;
    return hot_ ? Key{tier, use, -node.strength, bytes, node.rank}
                : Key{tier, bytes, use, -free, node.rank};
  }
  Key QueueKey(const Queue& queue) const {
    if (queue.sites.empty()) return {};
    const Key& first = queue.sites.begin()->first;
    if (preference_ == Preference::kBalance) return first;
    return {-static_cast<double>(queue.room), 0, 0, 0, std::get<4>(first)};
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
  }

  bool nothing() const { return lacking_.empty(); }

  // In the fastest tiers, on the fewest nodes.
  bool Whole() {
    for (const Tier slowest : kTiers) {
      if (Order(slowest) && Fewest()) return true;
    }
    return false;
  }

  // Whatever finds a place; returns how many copies did not.
  std::uint32_t Some() {
    Order(Tier::kNvme);
    Assign(SitesOf(limit_), Preference::kRoom, false);
    return unplaced_;
  }

 private:
  bool Fewest() {
    std::vector<std::int64_t> room(state_.domains(), 0);
    const auto once = static_cast<std::int64_t>(once_);
    std::int64_t usable = 0;
    double strength = standing_strength_;
    std::size_t again = holders_;
    for (std::size_t count = 1; count <= limit_; ++count) {
      const std::uint32_t owner = order_[count - 1];
      std::int64_t& of_domain = room[DomainOfOwner(owner)];
      usable -= std::min(of_domain, once);
      of_domain += room_[owner];
      usable += std::min(of_domain, once);
      for (std::uint32_t node : Usable(owner)) strength += state_.nodes()[node].strength;
      if (count < again && count < limit_) continue;
      if (usable < static_cast<std::int64_t>(wanted_)) continue;
      const bool strong = strength * state_.limits().target_load >= state_.table(table_).load;
      if (!strong && count < limit_) continue;
      const std::vector<std::uint32_t> chosen = SitesOf(count);
      for (Preference preference : {Preference::kBalance, Preference::kRoom}) {
        if (Assign(chosen, preference, true)) return true;
      }
      again = count + 1 + count / 16;  // trying costs as much as placing
    }
    return false;
  }

  std::uint32_t DomainOfOwner(std::uint32_t owner) const {
    return state_.nodes()[state_.owners()[owner].front()].domain;
  }

  // Its tiers that take copies of this table in this attempt.
  std::vector<std::uint32_t> Usable(std::uint32_t owner) const {
    std::vector<std::uint32_t> usable;
    for (std::uint32_t node : state_.owners()[owner]) {
      const NodeState& one = state_.nodes()[node];
      if (one.takes() && one.tier <= slowest_ && state_.MayUse(table_, one.tier)) {
        usable.push_back(node);
      }
    }
    return usable;
  }
  std::vector<std::uint32_t> SitesOf(std::size_t count) const {
    std::vector<std::uint32_t> sites;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::uint32_t node : Usable(order_[i])) sites.push_back(node);
    }
    return sites;
  }

  // Holders of the table first, then by what each adds to the usable room. False: as the attempt
  // before, for no node has a tier more.
  bool Order(Tier slowest) {
    slowest_ = slowest;
    std::vector<std::int64_t> room(state_.owners().size(), 0);
    bool same = !room_.empty();
    std::size_t sites = 0;
    for (std::uint32_t owner = 0; owner < room.size(); ++owner) {
      for (std::uint32_t node : Usable(owner)) {
        ++sites;
        room[owner] += std::max<std::int64_t>(0, state_.nodes()[node].free);
      }
    }
    same = same && sites == sites_;
    sites_ = sites;
    room_ = std::move(room);
    if (same) return false;
    order_.clear();
    standing_ = 0;
    standing_strength_ = 0;
    OrderHolders();
    OrderOthers();
    const std::size_t most = state_.table_view(table_).max_nodes;
    limit_ = order_.size();
    if (most != 0) limit_ = std::min(limit_, std::max(holders_, most - std::min(most, standing_)));
    return true;
  }

  void OrderHolders() {
    for (std::uint32_t owner : state_.table(table_).members) {
      if (!Usable(owner).empty()) {
        order_.push_back(owner);
        continue;
      }
      ++standing_;
      for (std::uint32_t node : state_.owners()[owner]) {
        if (state_.BytesOn(table_, node) > 0) standing_strength_ += state_.nodes()[node].strength;
      }
    }
    holders_ = order_.size();
  }

  void OrderOthers() {
    std::vector<std::int64_t> room(state_.domains(), 0);
    for (std::uint32_t owner : order_) room[DomainOfOwner(owner)] += room_[owner];
    using Entry = std::tuple<std::int64_t, int, std::int64_t, std::uint32_t>;
    const auto entry = [&](std::uint32_t owner) {
      const auto once = static_cast<std::int64_t>(once_);
      const std::int64_t of_domain = room[DomainOfOwner(owner)];
      double use = 0;
      for (std::uint32_t node : Usable(owner)) use = std::max(use, state_.nodes()[node].Use());
      return Entry{std::min(of_domain + room_[owner], once) - std::min(of_domain, once),
                   -static_cast<int>(std::min(64.0, use * 8)), room_[owner], ~owner};
    };
    std::priority_queue<Entry> rest;
    for (std::uint32_t owner = 0; owner < room_.size(); ++owner) {
      if (room_[owner] > 0 && !state_.IsMember(table_, owner)) rest.push(entry(owner));
    }
    while (!rest.empty()) {
      const Entry top = rest.top();
      rest.pop();
      // What a node adds only shrinks while others are taken.
      const Entry now = entry(~std::get<3>(top));
      if (now < top) {
        rest.push(now);
        continue;
      }
      order_.push_back(~std::get<3>(top));
      room[DomainOfOwner(order_.back())] += room_[order_.back()];
    }
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
  Tier slowest_ = Tier::kDram;
  std::size_t sites_ = 0;
  std::vector<std::int64_t> room_;    // of each owner, in the tiers of this attempt
  std::vector<std::uint32_t> order_;  // owners
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
