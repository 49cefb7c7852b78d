#include "poolserver/pull_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::poolserver {

PullSession::PullSession(Options options, Instant now) : options_(std::move(options)), asked_(now) {
  OpenSession open;
  open.client = options_.client;
  open.request_id = options_.request_id;
  open.node = options_.node;
  open.incarnation = options_.incarnation;
  open.tables = {options_.table};
  out_.emplace_back(std::move(open));
}

std::vector<ClientMessage> PullSession::TakeMessages() { return std::exchange(out_, {}); }

void PullSession::Hear(Instant now, const NodeMessage& message) {
  if (!status_.ok()) return;
  if (const auto* opened = std::get_if<SessionOpened>(&message)) {
    opened_ = *opened;
    lease_until_ = asked_ + opened->lease;
    next_renewal_ = asked_ + opened->lease / 3;
  } else if (const auto* refused = std::get_if<SessionRefused>(&message)) {
    End(refused->status.ok() ? absl::AbortedError("the session was refused") : refused->status);
  } else if (const auto* renewed = std::get_if<LeaseRenewed>(&message)) {
    const auto it = sent_.find(renewed->sequence);
    if (it == sent_.end()) return;
    lease_until_ = std::max(lease_until_, it->second + renewed->lease);
    sent_.erase(sent_.begin(), std::next(it));
  } else {
    Take(std::get<GrantUpdate>(message));
    Apply(now);
  }
}

void PullSession::Take(const GrantUpdate& update) {
  received_ = update.revision;
  for (const Withdrawal& withdrawal : update.withdrawn) {
    replicas_[withdrawal.shard].withdrawn = update.revision;
  }
  for (const Grant& grant : update.granted) {
    // Granted again, or replaced: the reads under what was granted before still count.
    Replica& replica = replicas_[grant.shard];
    const GrantRevision withdrawn = std::exchange(replica.withdrawn, GrantRevision());
    if (replica.reads > 0 && replica.replaced == GrantRevision()) replica.replaced = withdrawn;
    replica.grant = grant;
  }
}

void PullSession::Lost(absl::Status why) {
  End(why.ok() ? absl::UnavailableError("the session's stream ended") : std::move(why));
}

void PullSession::End(const absl::Status& why) {
  if (!status_.ok()) return;
  status_ = absl::Status(
      why.code(), absl::StrCat("pull session with node ", options_.node.name, " incarnation ",
                               options_.incarnation.value(), ": ", why.message()));
}

// Acknowledges every revision whose withdrawals nobody reads any more.
void PullSession::Apply(Instant now) {
  GrantRevision quiet = received_;
  for (const auto& [shard, replica] : replicas_) {
    if (replica.reads == 0) continue;
    for (const GrantRevision ends : {replica.replaced, replica.withdrawn}) {
      if (ends != GrantRevision()) quiet = std::min(quiet, GrantRevision(ends.value() - 1));
    }
  }
  if (quiet <= applied_) return;
  applied_ = quiet;
  std::erase_if(replicas_, [&](const auto& entry) {
    return entry.second.withdrawn != GrantRevision() && entry.second.reads == 0;
  });
  Renew(now);
}

void PullSession::Renew(Instant now) {
  if (!opened_ || !status_.ok()) return;
  sent_[++sequence_] = now;
  next_renewal_ = now + opened_->lease / 3;
  out_.emplace_back(RenewLease{sequence_, applied_});
}

void PullSession::Timer(Instant now) {
  if (!status_.ok()) return;
  if (!opened_) {
    if (now >= asked_ + options_.open_timeout) {
      End(absl::DeadlineExceededError("no answer to OpenSession in time"));
    }
    return;
  }
  if (now >= lease_until_) return End(absl::DeadlineExceededError("the lease ran out"));
  if (now >= next_renewal_) Renew(now);
}

Instant PullSession::NextTimer() const {
  if (!opened_) return asked_ + options_.open_timeout;
  return std::min(lease_until_, next_renewal_);
}

std::optional<Grant> PullSession::StartRead(Instant now, const ShardKey& shard) {
  if (!opened_ || !status_.ok() || now >= lease_until_) return std::nullopt;
  const auto it = replicas_.find(shard);
  if (it == replicas_.end() || it->second.withdrawn != GrantRevision()) return std::nullopt;
  ++it->second.reads;
  return it->second.grant;
}

void PullSession::FinishRead(Instant now, const ShardKey& shard) {
  const auto it = replicas_.find(shard);
  ENGRAM_CHECK(it != replicas_.end() && it->second.reads > 0);
  if (--it->second.reads > 0) return;
  it->second.replaced = GrantRevision();
  Apply(now);
}

void PullSession::Close() {
  for (const auto& [shard, replica] : replicas_) ENGRAM_CHECK(replica.reads == 0);
  if (status_.ok()) out_.emplace_back(Goodbye{});
  End(absl::CancelledError("closed"));
}

}  // namespace engram::poolserver
