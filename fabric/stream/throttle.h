// The FairShare of all pollers of a target, and what each tenant gathered. Costs a look at an
// atomic where no tenant has a budget. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "fabric/stream/fair_share.h"

namespace engram::fabric::stream {

// What sessions of one tenant did.
struct TenantMeter {
  std::string tenant;
  std::atomic<std::uint64_t> rows{0};
  std::atomic<std::uint64_t> waited{0};  // messages
};

class Throttle {
 public:
  // The meter of the tenant; the same one each time.
  std::shared_ptr<TenantMeter> MeterOf(const std::string& tenant);
  std::vector<TenantUse> Uses() const;

  // Tenants that are not named have no limit.
  void SetBudgets(Instant now, std::span<const std::pair<std::string, std::uint64_t>> budgets);

  bool active() const { return active_.load(std::memory_order_acquire); }
  // True: go on. False: `resume` is called once, from any thread.
  bool Ask(Instant now, TenantMeter* meter, std::uint64_t session, std::uint32_t rows,
           const std::function<void()>* resume);
  // Resumes those whose time has come.
  void Release(Instant now);
  // Resumes everybody; called until nobody waits any more.
  void ReleaseAll();
  // When Release is wanted at the latest; Instant::max(): nobody waits.
  Instant Next() const;

 private:
  void Resume(const std::vector<FairShare::Ticket>& tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  FairShare share_ ABSL_GUARDED_BY(mutex_);
  std::map<FairShare::Ticket, const std::function<void()>*> waiting_ ABSL_GUARDED_BY(mutex_);
  FairShare::Ticket last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<TenantMeter>> meters_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> limited_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> active_{false};  // some tenant has a budget, or somebody waits
};

}  // namespace engram::fabric::stream
