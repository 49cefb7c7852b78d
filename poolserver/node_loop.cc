#include "poolserver/node_loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engram/settings/units.h"
#include "engram/shard_layout.h"
#include "poolserver/tier_source.h"

namespace engram::poolserver {
namespace {

// How often the kernel is asked whether readers let go of memory that was given back.
constexpr Duration kCapacityEvery = std::chrono::seconds(1);
// Enough that one tier is read while the other is written.
constexpr std::uint32_t kMoveThreads = 3;

PullMeans Stoppable(PullMeans pulling, const std::atomic<bool>* stopping) {
  pulling.stopping = stopping;
  return pulling;
}

std::string Describe(const char* verb, const Loader::Summary& done) {
  const double rate = static_cast<double>(done.bytes) / std::max(done.seconds, 1e-9);
  return absl::StrCat(verb, " ", done.shards - done.failed, " of ", done.shards, " shards of ",
                      done.table.Full(), ": ", RoundSize(done.bytes), " in ", done.seconds, " s (",
                      RoundSize(static_cast<std::uint64_t>(rate)), "/s); first slab ",
                      done.granted);
}

}  // namespace

NodeLoop::NodeLoop(const NodeOptions& options, const Loader::Options& loading, const Tiers* tiers,
                   Exposure* exposure, const Clock* clock, Random* random, Inspect inspect,
                   NodeOutlets outlets, PullMeans pulling)
    : tiers_(tiers),
      exposure_(exposure),
      clock_(clock),
      inspect_(std::move(inspect)),
      outlets_(std::move(outlets)),
      state_(options, random),
      pulling_(Stoppable(std::move(pulling), &pulls_stopping_)),
      reported_tiers_(options.tiers),
      loader_(loading, tiers, PostEnded(),
              [this](const Loader::Summary& done) { outlets_.say(Describe("loaded", done)); }),
      puller_({1, loading.stripe_bytes, loading.checkpoints, "pull"}, tiers, PostEnded(),
              [this](const Loader::Summary& done) { outlets_.say(Describe("pulled", done)); }),
      mover_({kMoveThreads, loading.stripe_bytes, loading.checkpoints, "move"}, tiers, PostEnded(),
             [this](const Loader::Summary& done) { outlets_.say(Describe("moved", done)); }),
      memory_duty_("duty/memory"),
      inspect_duty_("duty/inspect"),
      scrub_duty_("duty/scrub"),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "duty/node");
}

NodeLoop::~NodeLoop() { Stop(); }

void NodeLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    items_.clear();
  }
  if (thread_.joinable()) thread_.join();
  memory_duty_.Stop();
  inspect_duty_.Stop();
  scrub_duty_.Stop();
  pulls_stopping_ = true;
  puller_.Stop();
  mover_.Stop();
  loader_.Stop();
}

void NodeLoop::Post(Event event, std::function<void()> handled) {
  MutexLock lock(&mutex_);
  if (!stopping_) items_.push_back({std::move(event), std::move(handled), nullptr});
}

void NodeLoop::Ask(std::function<void(const NodeState&)> look) {
  MutexLock lock(&mutex_);
  if (!stopping_) items_.push_back({Timer{}, nullptr, std::move(look)});
}

void NodeLoop::Run() {
  while (true) {
    std::deque<Item> items;
    const Instant now = clock_->Now();
    Instant wake = next_capacity_check_;
    if (std::optional<Instant> timer = state_.NextTimer()) wake = std::min(wake, *timer);
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !items_.empty();
      };
      mutex_.AwaitFor(std::max(wake - now, Duration::zero()), ready);
      if (stopping_) return;
      items.swap(items_);
    }
    for (Item& item : items) Handle(std::move(item));
    const Instant after = clock_->Now();
    if (after >= next_capacity_check_) ReportCapacity(after);
    if (std::optional<Instant> timer = state_.NextTimer(); timer && after >= *timer) Feed(Timer{});
  }
}

void NodeLoop::Handle(Item item) {
  if (item.look) return item.look(state_);
  Feed(std::move(item.event));
  if (item.handled) item.handled();
}

void NodeLoop::Feed(Event event) {
  std::vector<Action> actions = state_.OnEvent(clock_->Now(), std::move(event));
  if (state_.incarnation() != incarnation_) {
    incarnation_ = state_.incarnation();
    exposure_->SetIncarnation(incarnation_);
    state_.SetPaths(exposure_->paths());
  }
  if (state_.controller_reachable() != reachable_) {
    reachable_ = !reachable_;
    if (reachable_) {
      outlets_.say(absl::StrCat("joined the pool as incarnation ", incarnation_.value()));
    }
  }
  for (Action& action : actions) std::visit([this](auto& one) { Do(one); }, action);
}

void NodeLoop::ReportCapacity(Instant now) {
  next_capacity_check_ = now + kCapacityEvery;
  FollowAddresses();
  if (outlets_.tenant_uses) Feed(TenantsUsed{outlets_.tenant_uses()});
  std::vector<TierCapacity> tiers = tiers_->capacity();
  if (tiers == reported_tiers_) return;
  reported_tiers_ = tiers;
  Feed(CapacityChanged{std::move(tiers)});
}

// On the memory duty, which is the one that exposes. Not before the incarnation is known: what
// follows a target carries it.
void NodeLoop::FollowAddresses() {
  if (incarnation_ == Incarnation(0) || following_.exchange(true)) return;
  memory_duty_.Do([this] {
    Exposure::Followed followed = exposure_->FollowAddresses();
    for (const PathAddress& path : followed.now)
      outlets_.say(absl::StrCat("an address that readers were told is gone; they are told ",
                                std::string(Name(path.fabric)), " ", path.address, " instead"));
    if (!followed.left.empty()) Post(PathsMoved{exposure_->paths(), std::move(followed.left)});
    following_ = false;
  });
}

Loader::Ended NodeLoop::PostEnded() {
  return [this](const ShardKey& shard, absl::StatusOr<std::vector<std::uint32_t>> result) {
    if (result.ok()) {
      Post(ReplicaLoaded{shard, *std::move(result)});
    } else {
      Post(LoadEnded{shard, result.status()});
    }
  };
}

void NodeLoop::Do(SendToController& action) { outlets_.to_controller(action.message); }
void NodeLoop::Do(SendToClient& action) { outlets_.to_client(action.stream, action.message); }
void NodeLoop::Do(CloseStream& action) { outlets_.close_stream(action.stream); }
void NodeLoop::Do(AdmitSession& action) { exposure_->Admit(action.token, action.tenant); }
void NodeLoop::Do(UsePolicies& action) {
  exposure_->SetBudgets(action.tenants);
  if (outlets_.policies) outlets_.policies(action.tenants);
}
void NodeLoop::Do(DismissSession& action) { exposure_->Dismiss(action.token); }
void NodeLoop::Do(AllowReplicas& action) { exposure_->Allow(action.token, action.registrations); }
void NodeLoop::Do(DisallowReplicas& action) { exposure_->Disallow(action.token, action.ended); }

void NodeLoop::Do(StartLoad& action) {
  tables_.try_emplace(action.table.uid, std::make_shared<const SeenTable>(action.table));
  if (action.from) return StartMove(action);
  outlets_.say(absl::StrCat(
      "loading ", action.shards.size(), " shards of ", action.table.name.Full(),
      action.source ? absl::StrCat(" from node ", action.source->node.name) : std::string()));
  if (action.source && pulling_.fabric == nullptr) {
    for (ShardIndex shard : action.shards) {
      Post(LoadEnded{{action.table.uid, shard},
                     absl::UnavailableError("this node has no fabric to pull over; add stream to "
                                            "its --fabrics")});
    }
    return;
  }
  // Behind the memory that was released before, so that it can be taken again.
  if (action.source) {
    memory_duty_.Do([this, action] {
      puller_.Start(action.table, action.shards, action.tier,
                    [this, table = action.table,
                     from = *action.source]() -> absl::StatusOr<std::unique_ptr<LoadSource>> {
                      return std::make_unique<PullSource>(table, from, pulling_);
                    });
    });
    return;
  }
  memory_duty_.Do([this, table = std::move(action.table), shards = std::move(action.shards),
                   tier = action.tier] { loader_.Start(table, shards, tier); });
}

void NodeLoop::StartMove(const StartLoad& action) {
  outlets_.say(absl::StrCat("moving ", action.shards.size(), " shards of ",
                            action.table.name.Full(), " from ", std::string(Name(*action.from)),
                            " to ", std::string(Name(action.tier))));
  memory_duty_.Do([this, action] {
    mover_.Start(action.table, action.shards, action.tier,
                 [this, table = action.table,
                  from = *action.from]() -> absl::StatusOr<std::unique_ptr<LoadSource>> {
                   auto store = tiers_->Find(from);
                   if (!store.ok()) return store.status();
                   return std::make_unique<TierSource>(table, *store, pulling_.rate, clock_,
                                                       &pulls_stopping_);
                 });
  });
}

void NodeLoop::Do(StopLoad& action) {
  memory_duty_.Do([this, shard = action.shard] {
    loader_.Cancel(shard);
    puller_.Cancel(shard);
    mover_.Cancel(shard);
  });
}

void NodeLoop::Do(ExposeReplica& action) {
  const std::uint32_t stride = tables_.at(action.registration.shard.table)->layout.stride();
  memory_duty_.Do([this, wanted = std::move(action), stride] {
    absl::StatusOr<ReplicaExposed> exposed = Expose(wanted, stride);
    if (exposed.ok()) {
      Post(*std::move(exposed));
    } else {
      Post(ExposeFailed{wanted.registration, exposed.status()});
    }
  });
}

absl::StatusOr<ReplicaExposed> NodeLoop::Expose(const ExposeReplica& replica,
                                                std::uint32_t stride) const {
  const ShardKey& shard = replica.registration.shard;
  auto store = tiers_->Find(replica.tier);
  if (!store.ok()) return store.status();
  const std::optional<Place> place = (*store)->Find(shard);
  if (!place) return absl::InternalError("a replica without a place");
  if (place->slab != nullptr) return exposure_->Expose(replica, *place, stride);
  auto rows = (*store)->Rows(shard);
  if (!rows.ok()) return rows.status();
  return exposure_->ExposeRows(replica, *std::move(rows), place->length);
}

void NodeLoop::Do(HideReplica& action) {
  memory_duty_.Do([this, registration = action.registration] {
    exposure_->Hide(registration);
    Post(ReplicaHidden{registration});
  });
}

void NodeLoop::Do(ReleaseMemory& action) {
  memory_duty_.Do([this, action] {
    if (auto store = tiers_->Find(action.tier); store.ok()) (*store)->Free(action.shard);
  });
  next_capacity_check_ = std::min(next_capacity_check_, clock_->Now() + kCapacityEvery / 20);
}

void NodeLoop::Do(ScrubSlice& action) {
  scrub_duty_.Do([this, slice = action, table = tables_.at(action.shard.table)] {
    Post(SliceScrubbed{slice.shard, slice.tier, Scrub(slice, *table, &scrub_scratch_)});
  });
}

absl::Status NodeLoop::Scrub(const ScrubSlice& slice, const SeenTable& table,
                             std::vector<std::byte>* scratch) const {
  auto store = tiers_->Find(slice.tier);
  if (!store.ok()) return store.status();
  const ShardRange range = table.layout.Range(slice.shard.shard);
  const std::uint64_t stride = table.layout.stride();
  const std::uint64_t first = slice.first_block * kBlockRows;
  std::vector<std::uint32_t> found(slice.block_crcs.size());
  const std::uint64_t rows = std::min(range.rows - first, found.size() * kBlockRows);
  const auto bytes = (*store)->Read(slice.shard, first * stride, rows * stride, scratch);
  if (!bytes.ok()) return bytes.status();
  const absl::Status sound =
      table.packer.Verify({RowId(range.first.value() + first), rows, *bytes, found.data()});
  if (!sound.ok()) return sound;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != slice.block_crcs[i]) {
      return absl::DataLossError(absl::StrCat("block ", slice.first_block + i, " of shard ",
                                              slice.shard.shard.value(),
                                              " does not have the checksum it was loaded with"));
    }
  }
  return absl::OkStatus();
}

void NodeLoop::Do(StartInspection& action) {
  inspect_duty_.Do([this, action] {
    absl::StatusOr<Inspection> seen = inspect_(action.table, action.source);
    InspectionEnded ended{action.command, seen.status(), {}};
    if (seen.ok()) ended.inspection.push_back(*std::move(seen));
    Post(std::move(ended));
  });
}

void NodeLoop::Do(Exit& action) { outlets_.exit(action.why); }

}  // namespace engram::poolserver
