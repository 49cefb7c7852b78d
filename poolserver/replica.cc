#include "poolserver/replica.h"

#include <utility>

#include "engram/check.h"

namespace engram::poolserver {

ReplicaState Replica::state() const {
  switch (step_) {
    case Step::kLoading:
    case Step::kExposing: return ReplicaState::kLoading;
    case Step::kServing: return ReplicaState::kServing;
    case Step::kWaiting:
    case Step::kHiding: return ReplicaState::kDraining;
    case Step::kFreed: return ReplicaState::kRetired;
  }
  return ReplicaState::kRetired;
}

ReplicaReport Replica::Report() const {
  ReplicaReport report;
  report.shard = shard_;
  report.tier = tier_;
  report.state = state();
  if (step_ == Step::kServing) report.block_crcs = block_crcs_;
  report.error = error_;
  return report;
}

Grant Replica::MakeGrant() const {
  ENGRAM_CHECK(step_ == Step::kServing);
  return Grant{shard_, tier_, paths_};
}

void Replica::Loaded(std::vector<std::uint32_t> block_crcs) {
  ENGRAM_CHECK(step_ == Step::kLoading);
  step_ = Step::kExposing;
  block_crcs_ = std::move(block_crcs);
}

void Replica::Exposed(std::vector<GrantPath> paths) {
  ENGRAM_CHECK(step_ == Step::kExposing);
  paths_ = std::move(paths);
  step_ = retirement_wanted_ ? Step::kWaiting : Step::kServing;
}

void Replica::Failed(absl::Status why) {
  ENGRAM_CHECK(step_ == Step::kLoading || step_ == Step::kExposing);
  step_ = Step::kFreed;
  error_ = std::move(why);
}

void Replica::Retire(std::vector<Successor> successors) {
  if (retirement_wanted_) return;
  retirement_wanted_ = true;
  successors_ = std::move(successors);
  if (step_ == Step::kServing) step_ = Step::kWaiting;
}

void Replica::Suspect(absl::Status why) {
  ENGRAM_CHECK(step_ == Step::kServing);
  error_ = std::move(why);
  Retire({});
}

void Replica::Hide() {
  ENGRAM_CHECK(MayHide());
  step_ = Step::kHiding;
}

void Replica::Hidden() {
  ENGRAM_CHECK(step_ == Step::kHiding);
  error_ = absl::OkStatus();  // nothing is left of it
  step_ = Step::kFreed;
}

void Replica::AddReader(SessionId session) {
  ENGRAM_CHECK(step_ == Step::kServing);
  readers_.insert(session);
}

void Replica::RemoveReader(SessionId session) { readers_.erase(session); }

bool Replica::StartOwnRead() {
  if (step_ != Step::kServing) return false;
  ++own_readers_;
  return true;
}

void Replica::FinishOwnRead() {
  ENGRAM_CHECK(own_readers_ > 0);
  --own_readers_;
}

}  // namespace engram::poolserver
