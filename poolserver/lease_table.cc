#include "poolserver/lease_table.h"

#include <algorithm>

namespace engram::poolserver {

void LeaseTable::Grant(SessionId session, Instant now) {
  const Instant until = now + lease_ + margin_;
  const auto [it, inserted] = until_.try_emplace(session, until);
  if (!inserted) it->second = std::max(it->second, until);
}

void LeaseTable::End(SessionId session) { until_.erase(session); }

bool LeaseTable::HasRunOut(SessionId session, Instant now) const {
  const auto it = until_.find(session);
  return it == until_.end() || it->second <= now;
}

void LeaseTable::Forget(Instant now) {
  std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
}

std::optional<Instant> LeaseTable::NextRunOut() const {
  std::optional<Instant> next;
  for (const auto& [session, until] : until_) {
    if (!next || until < *next) next = until;
  }
  return next;
}

}  // namespace engram::poolserver
