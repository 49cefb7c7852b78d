// The latest lease that each session was ever granted, broken sessions included (ARCHITECTURE
// section 4, rules 2 and 3). A lease is kept until it has run out plus margin: only then may memory
// that the session could read be reused without its acknowledgement.
//
// It knows nothing of grants or streams. Times are the node's: a lease counts from the moment the
// node granted it, which is never before the client sent for it. Thread-confined: call from the
// owner thread only.
#pragma once

#include <map>
#include <optional>

#include "engram/clock.h"
#include "engram/ids.h"

namespace engram::poolserver {

class LeaseTable {
 public:
  // `margin` covers clocks that run at different rates (LeaseMargin).
  LeaseTable(Duration lease, Duration margin) : lease_(lease), margin_(margin) {}

  Duration lease() const { return lease_; }
  Duration margin() const { return margin_; }

  // The session's lease runs until at least now + lease. Never shortens it.
  void Grant(SessionId session, Instant now);
  // Ends the lease at once. REQUIRES: the session said goodbye after quiescence.
  void End(SessionId session);

  // True when the session cannot read any more: no lease, or the latest one ran out plus margin.
  bool HasRunOut(SessionId session, Instant now) const;
  // Drops leases that have run out plus margin.
  void Forget(Instant now);
  // When the next lease has run out plus margin; nothing when no lease is held.
  std::optional<Instant> NextRunOut() const;
  std::size_t size() const { return until_.size(); }

 private:
  const Duration lease_;
  const Duration margin_;
  std::map<SessionId, Instant> until_;  // margin included
};

}  // namespace engram::poolserver
