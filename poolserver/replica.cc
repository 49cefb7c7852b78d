#include "poolserver/replica.h"

#include <algorithm>
#include <utility>

#include "engram/check.h"

namespace engram::poolserver {

ReplicaState Replica::state() const {
  switch (step_) {
    case Step::kLoading:
    case Step::kExposing: return ReplicaState::kLoading;
    case Step::kServing: return ReplicaState::kServing;
    case Step::kWaiting: return ReplicaState::kDraining;
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

const Registration* Replica::Find(Registration::Step step) const {
  const auto it =
      std::find_if(registrations_.begin(), registrations_.end(),
                   [step](const Registration& registration) { return registration.step == step; });
  return it == registrations_.end() ? nullptr : &*it;
}

Registration* Replica::Find(RegistrationId id) {
  const auto it =
      std::find_if(registrations_.begin(), registrations_.end(),
                   [id](const Registration& registration) { return registration.id == id; });
  return it == registrations_.end() ? nullptr : &*it;
}

const Registration& Replica::current() const {
  const Registration* serving = Find(Registration::Step::kServing);
  ENGRAM_CHECK(step_ == Step::kServing && serving != nullptr);
  return *serving;
}

Grant Replica::MakeGrant() const { return Grant{shard_, current().tier, current().paths}; }

RegistrationId Replica::Loaded(std::vector<std::uint32_t> block_crcs) {
  ENGRAM_CHECK(step_ == Step::kLoading);
  step_ = Step::kExposing;
  block_crcs_ = std::move(block_crcs);
  registrations_.push_back({RegistrationId(++last_registration_), tier_});
  return registrations_.back().id;
}

RegistrationId Replica::StartRenewal(Tier tier) {
  ENGRAM_CHECK(step_ == Step::kServing && !renewing());
  registrations_.push_back({RegistrationId(++last_registration_), tier});
  return registrations_.back().id;
}

bool Replica::MayCopyTo(Tier tier) const {
  return step_ == Step::kServing && !moving_to_ && !renewing() &&
         std::none_of(registrations_.begin(), registrations_.end(),
                      [tier](const Registration& one) { return one.tier == tier; });
}

void Replica::StartCopy(Tier tier) {
  ENGRAM_CHECK(MayCopyTo(tier));
  moving_to_ = tier;
  copying_ = true;
  ++own_readers_[tier_];
}

void Replica::CopyEnded() {
  ENGRAM_CHECK(copying_);
  copying_ = false;
  FinishOwnRead(tier_);
}

void Replica::MoveFailed() {
  ENGRAM_CHECK(moving_to_ && !copying_);
  moving_to_.reset();
}

void Replica::Exposed(RegistrationId id, std::vector<GrantPath> paths, bool bearer_keys) {
  Registration* made = Find(id);
  ENGRAM_CHECK(made != nullptr && made->step == Registration::Step::kExposing);
  if (moving_to_ == made->tier) moving_to_.reset();
  made->paths = std::move(paths);
  made->bearer_keys = bearer_keys;
  if (step_ == Step::kServing) Find(current().id)->step = Registration::Step::kWaiting;
  if (step_ == Step::kExposing) step_ = retirement_wanted_ ? Step::kWaiting : Step::kServing;
  if (step_ == Step::kServing) tier_ = made->tier;
  made->step =
      step_ == Step::kServing ? Registration::Step::kServing : Registration::Step::kWaiting;
}

void Replica::Failed(absl::Status why) {
  ENGRAM_CHECK(step_ == Step::kLoading || step_ == Step::kExposing);
  registrations_.clear();
  step_ = Step::kFreed;
  error_ = std::move(why);
}

std::optional<Tier> Replica::RenewalFailed(RegistrationId id) {
  const Registration* failed = Find(id);
  ENGRAM_CHECK(step_ != Step::kExposing && failed != nullptr &&
               failed->step == Registration::Step::kExposing);
  return Erase(id);
}

void Replica::Retire(std::vector<Successor> successors) {
  if (retirement_wanted_) return;
  retirement_wanted_ = true;
  successors_ = std::move(successors);
  if (step_ != Step::kServing) return;
  Find(current().id)->step = Registration::Step::kWaiting;
  step_ = Step::kWaiting;
}

void Replica::Suspect(absl::Status why) {
  ENGRAM_CHECK(step_ == Step::kServing);
  error_ = std::move(why);
  Retire({});
}

// Readers of our own read memory, not under a registration: memory that another registration is of
// stays for them.
bool Replica::MayHide(const Registration& registration) const {
  if (registration.step != Registration::Step::kWaiting || !registration.readers.empty()) {
    return false;
  }
  return !own_readers_.contains(registration.tier) ||
         std::any_of(registrations_.begin(), registrations_.end(), [&](const Registration& other) {
           return other.id != registration.id && other.tier == registration.tier &&
                  other.step != Registration::Step::kHiding;
         });
}

std::vector<RegistrationId> Replica::StartHiding() {
  std::vector<RegistrationId> hidden;
  for (Registration& registration : registrations_) {
    if (!MayHide(registration)) continue;
    registration.step = Registration::Step::kHiding;
    hidden.push_back(registration.id);
  }
  return hidden;
}

std::optional<Tier> Replica::Hidden(RegistrationId id) {
  const Registration* hidden = Find(id);
  ENGRAM_CHECK(hidden != nullptr && hidden->step == Registration::Step::kHiding);
  return Erase(id);
}

std::optional<Tier> Replica::Erase(RegistrationId id) {
  const Tier tier = Find(id)->tier;
  std::erase_if(registrations_, [id](const Registration& one) { return one.id == id; });
  if (step_ == Step::kWaiting && registrations_.empty()) {
    error_ = absl::OkStatus();  // nothing is left of it
    step_ = Step::kFreed;
  }
  const bool needed = std::any_of(registrations_.begin(), registrations_.end(),
                                  [tier](const Registration& one) { return one.tier == tier; });
  return needed ? std::nullopt : std::optional(tier);
}

void Replica::AddReader(SessionId session, const std::string* tenant) {
  Registration* serving = Find(current().id);
  serving->readers.insert(session);
  if (tenant != nullptr) serving->told.insert(*tenant);
}

void Replica::RemoveReader(SessionId session, RegistrationId id) {
  if (Registration* registration = Find(id)) registration->readers.erase(session);
}

void Replica::RemoveReader(SessionId session) {
  for (Registration& registration : registrations_) registration.readers.erase(session);
}

void Replica::ForgetReaders() {
  for (Registration& registration : registrations_) {
    if (registration.step == Registration::Step::kWaiting) registration.readers.clear();
  }
}

bool Replica::StartOwnRead() {
  if (step_ != Step::kServing) return false;
  ++own_readers_[tier_];
  return true;
}

void Replica::FinishOwnRead(Tier tier) {
  const auto readers = own_readers_.find(tier);
  ENGRAM_CHECK(readers != own_readers_.end());
  if (--readers->second == 0) own_readers_.erase(readers);
}

}  // namespace engram::poolserver
