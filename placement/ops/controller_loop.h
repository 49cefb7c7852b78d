// The thread that owns the Controller: takes events from any thread, runs them one by one, carries
// the actions out through its outlets, and publishes the state for readers. No gRPC in it.
//
// Where there are several controllers, the loop has a Controller only while its process leads: it
// opens one when the lease is there, which reads the whole state, and drops it when the lease is
// gone or the state may be another than it believes. Without one it refuses everything, naming the
// leader. It looks at the lease before each event and again before it carries out what came of it.
//
// Its queue is bounded by its callers: a stream posts its next message when the last one was
// handled, and calls beyond kMaxCalls are refused. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "placement/ops/controller.h"
#include "placement/ops/leader_lease.h"
#include "placement/state/map_history.h"

namespace engram::placement {

class ControllerLoop {
 public:
  // Called on the loop's thread; must not block.
  struct Outlets {
    std::function<void(LinkId, ControllerToNode)> send;
    std::function<void(LinkId, const absl::Status&)> close;
    std::function<void()> map_changed;  // history and snapshot have the new epoch
    std::function<void(const std::string&)> say;
    std::function<void(const absl::Status&)> deposed;
    // It leads no more: every stream and watch ends with this. Only where there is a seat.
    std::function<void(const absl::Status&)> stepped_down = nullptr;
  };
  // For one of several controllers.
  struct Seat {
    const LeaderLease* lease = nullptr;  // must outlive the loop
    std::function<absl::StatusOr<std::unique_ptr<Controller>>(Instant now, StateStore*, Random*)>
        open;
  };
  using Called = std::function<void(absl::StatusOr<TableRecord>)>;
  using IntentCalled = std::function<void(absl::StatusOr<IntentReply>)>;
  using TenantCalled = std::function<void(absl::StatusOr<TenantRecord>)>;
  using MoveCalled = std::function<void(absl::StatusOr<MoveRecord>)>;
  static constexpr std::size_t kMaxCalls = 1024;

  // `clock` must outlive the loop. The thread starts with Start.
  ControllerLoop(std::unique_ptr<StateStore> store, std::unique_ptr<Random> random,
                 std::unique_ptr<Controller> controller, const Clock* clock);
  ControllerLoop(std::unique_ptr<StateStore> store, std::unique_ptr<Random> random, Seat seat,
                 const Clock* clock);
  ~ControllerLoop();
  void Start(Outlets outlets);
  // Ends the thread; calls under way are answered Unavailable. Idempotent.
  void Stop();

  LinkId NewLink();
  // `handled` runs on the loop's thread after the actions; it does not run after Stop.
  void Post(Event event, std::function<void()> handled = nullptr);
  void Load(LoadRequest request, Called called);
  void Delete(DeleteRequest request, Called called);
  void SetAlias(AliasRequest request, Called called);
  void SetNodeIntent(IntentRequest request, IntentCalled called);
  void MoveShard(MoveRequest request, MoveCalled called);
  void SetTenant(TenantRequest request, TenantCalled called);

  // OK while this controller leads. The snapshot of one that does not is out of date.
  absl::Status Refusal() const;
  std::shared_ptr<const ClusterState> snapshot() const;
  Counters counters() const;
  const MapHistory& history() const { return history_; }
  const std::string& store_name() const { return store_name_; }

 private:
  struct Item {
    Event event;
    std::function<void()> handled;
  };
  void Run();
  void RunItem(Item item);
  void Feed(Event event);
  // Whether there is a controller that may act; takes or leaves the seat where that has changed.
  bool Leads();
  bool HoldsLease() const;
  void TakeSeat(Instant now);
  void StepDown(const absl::Status& why);
  void Refuse(const Event& event);
  void Publish();
  using AnyCalled = std::variant<Called, IntentCalled, MoveCalled, TenantCalled>;
  template <class Asked, class Request, class CalledType>
  void Ask(Request request, CalledType called);
  // Answers the call, if it is still known.
  template <class CalledType, class Result>
  void Reply(CallId call, Result result);
  void Do(SendToNode& action) { outlets_.send(action.link, std::move(action.message)); }
  void Do(CloseLink& action) { outlets_.close(action.link, action.why); }
  void Do(Answer& action) { Reply<Called>(action.call, std::move(action.table)); }
  void Do(IntentAnswer& action) { Reply<IntentCalled>(action.call, std::move(action.node)); }
  void Do(MoveAnswer& action) { Reply<MoveCalled>(action.call, std::move(action.move)); }
  void Do(TenantAnswer& action) { Reply<TenantCalled>(action.call, std::move(action.tenant)); }
  void Do(MapChanged&) {}
  void Do(Say& action) { outlets_.say(action.text); }
  void Do(Deposed& action) { outlets_.deposed(action.why); }

  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Random> random_;
  const Seat seat_;                         // empty: it always leads
  std::unique_ptr<Controller> controller_;  // null: it does not lead
  const Clock* const clock_;
  const std::string store_name_;
  MapHistory history_;
  Outlets outlets_;
  Instant fed_{};         // when the controller last got an event
  Instant next_try_{};    // to take the seat
  std::string last_try_;  // why it failed

  mutable Mutex mutex_;
  bool leading_ ABSL_GUARDED_BY(mutex_) = false;  // controller_ != nullptr
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<CallId, AnyCalled> calls_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ClusterState> published_ ABSL_GUARDED_BY(mutex_);
  Counters counters_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace engram::placement
