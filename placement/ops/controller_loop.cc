#include "placement/ops/controller_loop.h"

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engram/not_leader.h"

namespace engram::placement {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(200);
constexpr Duration kStalled = std::chrono::seconds(1);
constexpr Duration kTakeSeatEvery = std::chrono::seconds(1);

}  // namespace

ControllerLoop::ControllerLoop(std::unique_ptr<StateStore> store, std::unique_ptr<Random> random,
                               std::unique_ptr<Controller> controller, const Clock* clock)
    : store_(std::move(store)),
      random_(std::move(random)),
      controller_(std::move(controller)),
      clock_(clock),
      store_name_(store_->Describe()),
      history_(controller_->state().epoch) {
  MutexLock lock(&mutex_);
  leading_ = true;
  published_ = controller_->snapshot();
}

ControllerLoop::ControllerLoop(std::unique_ptr<StateStore> store, std::unique_ptr<Random> random,
                               Seat seat, const Clock* clock)
    : store_(std::move(store)),
      random_(std::move(random)),
      seat_(std::move(seat)),
      clock_(clock),
      store_name_(store_->Describe()),
      history_(Epoch()) {
  MutexLock lock(&mutex_);
  published_ = std::make_shared<const ClusterState>();
}

ControllerLoop::~ControllerLoop() { Stop(); }

void ControllerLoop::Start(Outlets outlets) {
  outlets_ = std::move(outlets);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "duty/placement");
}

void ControllerLoop::Stop() {
  std::map<CallId, AnyCalled> calls;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    items_.clear();
    calls.swap(calls_);
  }
  if (thread_.joinable()) thread_.join();
  for (auto& [id, called] : calls) {
    std::visit(
        [](auto& one) { one(absl::UnavailableError("the controller is stopping; try again")); },
        called);
  }
}

LinkId ControllerLoop::NewLink() {
  MutexLock lock(&mutex_);
  return LinkId(++last_id_);
}

void ControllerLoop::Post(Event event, std::function<void()> handled) {
  MutexLock lock(&mutex_);
  if (!stopping_) items_.push_back({std::move(event), std::move(handled)});
}

template <class Asked, class Request, class CalledType>
void ControllerLoop::Ask(Request request, CalledType called) {
  absl::Status why = Refusal();
  if (why.ok()) {
    MutexLock lock(&mutex_);
    if (stopping_) {
      why = absl::UnavailableError("the controller is stopping; try again");
    } else if (calls_.size() >= kMaxCalls) {
      why = absl::ResourceExhaustedError(
          "the controller has 1024 calls under way, the limit; try again later");
    } else {
      const CallId call(++last_id_);
      calls_[call] = std::move(called);
      items_.push_back({Asked{call, std::move(request)}, nullptr});
      return;
    }
  }
  called(why);
}

template <class CalledType, class Result>
void ControllerLoop::Reply(CallId call, Result result) {
  CalledType called;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(call);
    if (it == calls_.end()) return;
    called = std::move(std::get<CalledType>(it->second));
    calls_.erase(it);
  }
  called(std::move(result));
}

void ControllerLoop::Load(LoadRequest request, Called called) {
  Ask<LoadAsked>(std::move(request), std::move(called));
}

void ControllerLoop::Delete(DeleteRequest request, Called called) {
  Ask<DeleteAsked>(std::move(request), std::move(called));
}

void ControllerLoop::SetAlias(AliasRequest request, Called called) {
  Ask<AliasAsked>(std::move(request), std::move(called));
}

void ControllerLoop::SetNodeIntent(IntentRequest request, IntentCalled called) {
  Ask<IntentAsked>(std::move(request), std::move(called));
}

void ControllerLoop::MoveShard(MoveRequest request, MoveCalled called) {
  Ask<MoveAsked>(std::move(request), std::move(called));
}

void ControllerLoop::SetTenant(TenantRequest request, TenantCalled called) {
  Ask<TenantAsked>(std::move(request), std::move(called));
}

std::shared_ptr<const ClusterState> ControllerLoop::snapshot() const {
  MutexLock lock(&mutex_);
  return published_;
}

Counters ControllerLoop::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

void ControllerLoop::Run() {
  Instant next_tick = clock_->Now();
  fed_ = next_tick;
  while (true) {
    std::deque<Item> items;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !items_.empty();
      };
      const Duration wait = std::max(next_tick - clock_->Now(), Duration::zero());
      mutex_.AwaitFor(wait, ready);
      if (stopping_) return;
      items.swap(items_);
    }
    for (Item& item : items) RunItem(std::move(item));
    if (clock_->Now() >= next_tick) {
      RunItem({Tick{}, nullptr});
      next_tick = clock_->Now() + kTickEvery;
    }
  }
}

void ControllerLoop::RunItem(Item item) {
  if (Leads()) {
    Feed(std::move(item.event));
  } else {
    Refuse(item.event);
  }
  if (item.handled) item.handled();
}

bool ControllerLoop::HoldsLease() const {
  return seat_.lease == nullptr || seat_.lease->Held(clock_->Now());
}

absl::Status ControllerLoop::Refusal() const {
  if (!HoldsLease()) return NotLeader(seat_.lease->leader());
  MutexLock lock(&mutex_);
  return leading_ ? absl::OkStatus() : NotLeader("");
}

bool ControllerLoop::Leads() {
  if (seat_.lease == nullptr) return true;
  if (!HoldsLease()) {
    if (controller_ != nullptr) StepDown(NotLeader(seat_.lease->leader()));
    return false;
  }
  if (controller_ == nullptr && clock_->Now() >= next_try_) TakeSeat(clock_->Now());
  return controller_ != nullptr;
}

void ControllerLoop::TakeSeat(Instant now) {
  auto opened = seat_.open(now, store_.get(), random_.get());
  next_try_ = clock_->Now() + kTakeSeatEvery;
  if (!opened.ok()) {
    std::string why(opened.status().message());
    if (why != last_try_) outlets_.say(absl::StrCat("leads, but cannot read the state: ", why));
    last_try_ = std::move(why);
    return;
  }
  if (!HoldsLease()) return;  // it took too long
  last_try_.clear();
  controller_ = *std::move(opened);
  fed_ = clock_->Now();
  history_.Restart(controller_->state().epoch);
  Publish();
  {
    MutexLock lock(&mutex_);
    leading_ = true;
  }
  outlets_.say(absl::StrCat("acts as leader, fencing token ", controller_->state().token.value(),
                            ", epoch ", controller_->state().epoch.value()));
}

void ControllerLoop::StepDown(const absl::Status& why) {
  controller_.reset();
  std::map<CallId, AnyCalled> calls;
  {
    MutexLock lock(&mutex_);
    leading_ = false;
    calls.swap(calls_);
  }
  for (auto& [id, called] : calls) {
    std::visit([&](auto& one) { one(why); }, called);
  }
  outlets_.stepped_down(why);
  outlets_.say(absl::StrCat("acts as leader no more: ", why.message()));
}

void ControllerLoop::Refuse(const Event& event) {
  absl::Status why = Refusal();
  if (why.ok()) why = NotLeader("");
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.link; }) outlets_.close(one.link, why);
        if constexpr (requires { one.call; }) {
          AnyCalled called;
          {
            MutexLock lock(&mutex_);
            const auto it = calls_.find(one.call);
            if (it == calls_.end()) return;  // answered when it stepped down
            called = std::move(it->second);
            calls_.erase(it);
          }
          std::visit([&](auto& answer) { answer(why); }, called);
        }
      },
      event);
}

void ControllerLoop::Feed(Event event) {
  const Instant now = clock_->Now();
  if (now - fed_ > kStalled) controller_->Slept(now - fed_);
  fed_ = now;
  std::vector<Action> actions = controller_->OnEvent(now, std::move(event));
  // The lease may have run out meanwhile, or what the controller believes may be wrong: then
  // nothing of this is said to anybody, and whoever asked asks again.
  if (!HoldsLease()) return StepDown(NotLeader(seat_.lease->leader()));
  for (const Action& action : actions) {
    const auto* deposed = std::get_if<Deposed>(&action);
    if (deposed == nullptr || seat_.lease == nullptr) continue;
    outlets_.say(std::string(deposed->why.message()));
    return StepDown(NotLeader(""));
  }
  // History before state, state before anything that says so: see MapHistory::Since.
  bool changed = false;
  for (Action& action : actions) {
    if (auto* map = std::get_if<MapChanged>(&action)) {
      history_.Append(std::move(map->delta));
      changed = true;
    }
  }
  Publish();
  if (changed) outlets_.map_changed();
  for (Action& action : actions) std::visit([this](auto& one) { Do(one); }, action);
}

void ControllerLoop::Publish() {
  MutexLock lock(&mutex_);
  published_ = controller_->snapshot();
  counters_ = controller_->counters();
}

}  // namespace engram::placement
