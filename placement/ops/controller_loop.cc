#include "placement/ops/controller_loop.h"

#include <pthread.h>

#include "absl/time/time.h"

namespace engram::placement {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(200);

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
  published_ = controller_->snapshot();
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
  absl::Status why;
  {
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
    for (Item& item : items) {
      Feed(std::move(item.event));
      if (item.handled) item.handled();
    }
    if (clock_->Now() >= next_tick) {
      Feed(Tick{});
      next_tick = clock_->Now() + kTickEvery;
    }
  }
}

void ControllerLoop::Feed(Event event) {
  std::vector<Action> actions = controller_->OnEvent(clock_->Now(), std::move(event));
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
