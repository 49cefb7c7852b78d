#include "fabric/stream/throttle.h"

#include <algorithm>

namespace engram::fabric::stream {

std::shared_ptr<TenantMeter> Throttle::MeterOf(const std::string& tenant) {
  MutexLock lock(&mutex_);
  std::shared_ptr<TenantMeter>& meter = meters_[tenant];
  if (meter == nullptr) {
    meter = std::make_shared<TenantMeter>();
    meter->tenant = tenant;
  }
  return meter;
}

std::vector<TenantUse> Throttle::Uses() const {
  std::vector<TenantUse> out;
  MutexLock lock(&mutex_);
  for (const auto& [tenant, meter] : meters_) {
    if (tenant.empty()) continue;
    out.push_back({tenant, meter->rows.load(std::memory_order_relaxed),
                   meter->waited.load(std::memory_order_relaxed)});
  }
  return out;
}

void Throttle::SetBudgets(Instant now,
                          std::span<const std::pair<std::string, std::uint64_t>> budgets) {
  MutexLock lock(&mutex_);
  for (const std::string& tenant : limited_) {
    const bool still = std::any_of(budgets.begin(), budgets.end(),
                                   [&](const auto& budget) { return budget.first == tenant; });
    if (!still) share_.SetBudget(now, tenant, 0);
  }
  limited_.clear();
  for (const auto& [tenant, rows] : budgets) {
    share_.SetBudget(now, tenant, rows);
    limited_.push_back(tenant);
  }
  active_ = share_.has_budgets();
}

bool Throttle::Ask(Instant now, TenantMeter* meter, std::uint64_t session, std::uint32_t rows,
                   const std::function<void()>* resume) {
  MutexLock lock(&mutex_);
  const FairShare::Ticket ticket = ++last_;
  if (share_.Ask(now, meter->tenant, session, rows, ticket)) return true;
  meter->waited.fetch_add(1, std::memory_order_relaxed);
  waiting_[ticket] = resume;
  return false;
}

// Under the lock, so that nobody is resumed after ReleaseAll has returned.
void Throttle::Resume(const std::vector<FairShare::Ticket>& tickets) {
  for (const FairShare::Ticket ticket : tickets) {
    const auto found = waiting_.find(ticket);
    (*found->second)();
    waiting_.erase(found);
  }
}

void Throttle::Release(Instant now) {
  MutexLock lock(&mutex_);
  Resume(share_.Release(now));
  active_ = share_.has_budgets();
}

void Throttle::ReleaseAll() {
  MutexLock lock(&mutex_);
  Resume(share_.ReleaseAll());
}

Instant Throttle::Next() const {
  MutexLock lock(&mutex_);
  return share_.Next().value_or(Instant::max());
}

}  // namespace engram::fabric::stream
