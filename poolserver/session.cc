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

void NodeSession::AddGrant(const Grant& grant, RegistrationId registration) {
  granted_[grant.shard] = registration;
  pending_.granted.push_back(grant);
}

void NodeSession::AddWithdrawal(const Withdrawal& withdrawal) {
  const auto held = granted_.extract(withdrawal.shard);
  ENGRAM_CHECK(!held.empty());
  std::erase_if(pending_.granted,
                [&](const Grant& grant) { return grant.shard == withdrawal.shard; });
  pending_.withdrawn.push_back(withdrawal);
  pending_ends_.push_back({withdrawal.shard, held.mapped()});
}

void NodeSession::Replace(const Grant& grant, RegistrationId registration) {
  AddWithdrawal({grant.shard, {}});
  AddGrant(grant, registration);
}

void NodeSession::AddPath(std::uint32_t path, const PathAddress& address) {
  if (told_paths_.insert(path).second) pending_.paths.push_back({path, address});
}

std::optional<GrantUpdate> NodeSession::TakeUpdate() {
  if (!stream_ || (pending_.granted.empty() && pending_.withdrawn.empty())) return std::nullopt;
  sent_ = GrantRevision(sent_.value() + 1);
  pending_.revision = sent_;
  if (!pending_ends_.empty()) unapplied_[sent_] = std::exchange(pending_ends_, {});
  return std::exchange(pending_, {});
}

absl::StatusOr<std::vector<RegistrationKey>> NodeSession::Apply(GrantRevision applied) {
  if (applied > sent_ || applied < applied_) {
    return absl::InvalidArgumentError(
        absl::StrCat("session ", id_.value(), " of client \"", client_, "\" applied revision ",
                     applied.value(), "; it must be between ", applied_.value(),
                     " (applied before) and ", sent_.value(), " (sent); open a new session"));
  }
  applied_ = applied;
  renewed_ = true;
  std::vector<RegistrationKey> quiet;
  while (!unapplied_.empty() && unapplied_.begin()->first <= applied) {
    const std::vector<RegistrationKey>& ended = unapplied_.begin()->second;
    quiet.insert(quiet.end(), ended.begin(), ended.end());
    unapplied_.erase(unapplied_.begin());
  }
  return quiet;
}

std::optional<RegistrationId> NodeSession::NewestEnding(const ShardKey& shard) const {
  std::optional<RegistrationId> newest;
  const auto look = [&](const std::vector<RegistrationKey>& ending) {
    for (const RegistrationKey& one : ending) {
      if (one.shard == shard)
        newest = std::max(newest.value_or(RegistrationId()), one.registration);
    }
  };
  for (const auto& [revision, ending] : unapplied_) look(ending);
  look(pending_ends_);
  return newest;
}

std::optional<RegistrationId> NodeSession::MayRead(const ShardKey& shard) const {
  const auto held = granted_.find(shard);
  return held != granted_.end() ? std::optional(held->second) : NewestEnding(shard);
}

void NodeSession::Reattach(StreamId stream) {
  ENGRAM_CHECK(MayReattach());
  stream_ = stream;
  granted_.clear();
  told_paths_.clear();
  pending_ = {};
}

}  // namespace engram::poolserver
