#include "poolserver/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::poolserver {

NodeSession::NodeSession(SessionId id, const SessionToken& token, const OpenSession& open,
                         StreamId stream)
    : id_(id),
      token_(token),
      client_(open.client),
      proven_(open.proven),
      tenant_(proven_ && proven_->role == Role::kClient ? proven_->tenant : open.tenant),
      request_id_(open.request_id),
      tables_(open.tables.begin(), open.tables.end()),
      stream_(stream) {}

void NodeSession::AddGrant(const Grant& grant) {
  granted_.insert(grant.shard);
  pending_.granted.push_back(grant);
}

void NodeSession::AddWithdrawal(const Withdrawal& withdrawal) {
  ENGRAM_CHECK(granted_.erase(withdrawal.shard) == 1);
  std::erase_if(pending_.granted,
                [&](const Grant& grant) { return grant.shard == withdrawal.shard; });
  pending_.withdrawn.push_back(withdrawal);
}

std::optional<GrantUpdate> NodeSession::TakeUpdate() {
  if (!stream_ || (pending_.granted.empty() && pending_.withdrawn.empty())) return std::nullopt;
  sent_ = GrantRevision(sent_.value() + 1);
  pending_.revision = sent_;
  if (!pending_.withdrawn.empty()) {
    std::vector<ShardKey>& waiting = unapplied_[sent_];
    for (const Withdrawal& withdrawal : pending_.withdrawn) waiting.push_back(withdrawal.shard);
  }
  return std::exchange(pending_, {});
}

absl::StatusOr<std::vector<ShardKey>> NodeSession::Apply(GrantRevision applied) {
  if (applied > sent_ || applied < applied_) {
    return absl::InvalidArgumentError(
        absl::StrCat("session ", id_.value(), " of client \"", client_, "\" applied revision ",
                     applied.value(), "; it must be between ", applied_.value(),
                     " (applied before) and ", sent_.value(), " (sent); open a new session"));
  }
  applied_ = applied;
  renewed_ = true;
  std::vector<ShardKey> quiet;
  while (!unapplied_.empty() && unapplied_.begin()->first <= applied) {
    const std::vector<ShardKey>& shards = unapplied_.begin()->second;
    quiet.insert(quiet.end(), shards.begin(), shards.end());
    unapplied_.erase(unapplied_.begin());
  }
  return quiet;
}

bool NodeSession::IsWithdrawing(const ShardKey& shard) const {
  for (const Withdrawal& withdrawal : pending_.withdrawn) {
    if (withdrawal.shard == shard) return true;
  }
  for (const auto& [revision, shards] : unapplied_) {
    if (std::find(shards.begin(), shards.end(), shard) != shards.end()) return true;
  }
  return false;
}

void NodeSession::Reattach(StreamId stream) {
  ENGRAM_CHECK(MayReattach());
  stream_ = stream;
  granted_.clear();
  pending_ = {};
}

}  // namespace engram::poolserver
