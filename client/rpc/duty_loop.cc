#include "client/rpc/duty_loop.h"

#include <pthread.h>

#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace engram::client {

DutyLoop::~DutyLoop() { Stop(); }

void DutyLoop::Start(std::function<std::optional<Instant>(Instant now)> tick) {
  tick_ = std::move(tick);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "engram/duty");
}

bool DutyLoop::Post(std::function<void()> event) {
  MutexLock lock(&mutex_);
  if (stopped_) return false;
  events_.push_back(std::move(event));
  return true;
}

bool DutyLoop::Do(const std::function<void()>& event) {
  absl::Notification handled;
  if (!Post([&] {
        event();
        handled.Notify();
      }))
    return false;
  handled.WaitForNotification();
  return true;
}

void DutyLoop::Stop() {
  std::deque<std::function<void()>> dropped;  // what they hold ends without the lock
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    dropped.swap(events_);
  }
  if (thread_.joinable()) thread_.join();
}

void DutyLoop::Run() {
  std::optional<Instant> wake = SystemClock::Get().Now();
  while (true) {
    std::function<void()> event;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || !events_.empty();
      };
      if (wake) {
        mutex_.AwaitFor(*wake - SystemClock::Get().Now(), ready);
      } else {
        mutex_.Await(ready);
      }
      if (stopped_) return;
      if (!events_.empty()) {
        event = std::move(events_.front());
        events_.pop_front();
      }
    }
    if (event) event();
    wake = tick_(SystemClock::Get().Now());
  }
}

}  // namespace engram::client
