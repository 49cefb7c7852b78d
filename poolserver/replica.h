// The life of one replica on its node: Loading, Serving, Draining, Retired, never backwards
// (ARCHITECTURE section 4, rule 3). Retirement is tell, wait, deregister, reuse, in that order:
//
//   kLoading      a loader writes its memory; nobody can read it
//   kExposing     loaded; being registered with the fabrics
//   kServing      sessions may be granted it
//   kWaiting      every session was told; some session or reader of our own may still read it, or
//                 it is being deregistered from the fabrics
//   kFreed        deregistered; its memory may be reused
//
// What sessions read under is a Registration (poolserver/registration.h). While it serves, a
// replica can be registered once more (StartRenewal, Exposed): sessions are given the new one in
// place of the old one, which is hidden as soon as nobody reads under it any more.
//
// A move to another tier of this node is such a registration, of a copy: StartCopy, CopyEnded,
// StartRenewal(moving_to), Exposed. Until then it serves from where it was, and a move that fails
// (RenewalFailed, MoveFailed) leaves that as it is. The memory of a tier is free with the last
// registration of it.
//
// This class knows who may still read; it does not know sessions' streams, memory or fabrics. The
// node's own readers (gather, pulls, scrubber) count as readers. Thread-confined: call from the
// owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "engram/shard_map.h"
#include "poolserver/registration.h"

namespace engram::poolserver {

class Replica {
 public:
  enum class Step : std::uint8_t { kLoading, kExposing, kServing, kWaiting, kFreed };

  Replica(const ShardKey& shard, Tier tier) : shard_(shard), tier_(tier) {}

  const ShardKey& shard() const { return shard_; }
  // Where the bytes lie that sessions are granted; before, where they are loaded to.
  Tier tier() const { return tier_; }
  // Where it is moving to; nothing when it is not.
  std::optional<Tier> moving_to() const { return moving_to_; }
  bool copying() const { return copying_; }
  Step step() const { return step_; }
  ReplicaState state() const;
  ReplicaReport Report() const;
  // REQUIRES: kServing. What a session is told, and the registration that it is told of.
  Grant MakeGrant() const;
  const Registration& current() const;
  const std::vector<Successor>& successors() const { return successors_; }

  // Each transition REQUIRES the step that it leaves; a wrong one aborts.
  // kLoading -> kExposing. Returns the registration to be made.
  RegistrationId Loaded(std::vector<std::uint32_t> block_crcs);
  // kServing, no registration being made: one more is wanted, of memory in `tier`.
  RegistrationId StartRenewal(Tier tier);
  bool renewing() const { return Find(Registration::Step::kExposing) != nullptr; }
  // Whether it can be copied to that other tier now: it serves, nothing is being registered, and
  // nothing is left there of an earlier stay.
  bool MayCopyTo(Tier tier) const;
  // REQUIRES: MayCopyTo(tier). The copy reads its memory as a reader of our own.
  void StartCopy(Tier tier);
  // The copy was made, or it was not and nobody writes it any more.
  void CopyEnded();
  // REQUIRES: moving, not copying. It stays where it is; the copy's memory is the caller's to free.
  void MoveFailed();
  // The registration is made. kExposing -> kServing; kServing: takes the place of the current one.
  void Exposed(RegistrationId registration, std::vector<GrantPath> paths, bool bearer_keys = false);
  // kLoading or kExposing -> kFreed: the loader has stopped and never touches the memory again, or
  // no fabric took the memory.
  void Failed(absl::Status why);
  // No fabric took the memory for one more registration: the others stand as they are. Returns the
  // tier whose memory nothing is in need of any more, if that was the last registration of it.
  std::optional<Tier> RenewalFailed(RegistrationId registration);
  // REQUIRES: kServing. Its bytes are not what was loaded, or its keys cannot be changed: retired
  // for that reason, which the report carries until it is gone.
  void Suspect(absl::Status why);
  // kServing -> kWaiting: nobody is granted it from now on. A replica that does not serve yet only
  // remembers it (retirement_wanted) until its loader has stopped or it is exposed. Idempotent.
  void Retire(std::vector<Successor> successors);
  bool retirement_wanted() const { return retirement_wanted_; }
  // The registrations under which nobody reads any more, from now on kHiding.
  std::vector<RegistrationId> StartHiding();
  // It is deregistered; with the last one kWaiting -> kFreed. Returns what RenewalFailed does.
  std::optional<Tier> Hidden(RegistrationId registration);

  // A session is granted this replica: it may read under the current registration until it is done.
  // Its tenant, if it has proven one, knows the keys from now on.
  void AddReader(SessionId session, const std::string* tenant = nullptr);
  // `session` is done with one registration / with all.
  void RemoveReader(SessionId session, RegistrationId registration);
  void RemoveReader(SessionId session);
  // Breaks rule 3; see protocol_switches.h.
  void ForgetReaders();
  const std::vector<Registration>& registrations() const { return registrations_; }
  // REQUIRES: loaded.
  std::span<const std::uint32_t> block_crcs() const { return block_crcs_; }
  // What SumOf(block_crcs) must be; nothing when that is not known.
  std::optional<std::uint64_t> expected_sum;

  // One more reader of our own, of the memory in tier(). False, and nothing counted, unless
  // kServing.
  bool StartOwnRead();
  void FinishOwnRead(Tier tier);

 private:
  const Registration* Find(Registration::Step step) const;
  Registration* Find(RegistrationId id);
  bool MayHide(const Registration& registration) const;
  std::optional<Tier> Erase(RegistrationId id);

  const ShardKey shard_;
  Tier tier_;
  std::optional<Tier> moving_to_;
  bool copying_ = false;
  Step step_ = Step::kLoading;
  bool retirement_wanted_ = false;
  std::vector<std::uint32_t> block_crcs_;
  std::vector<Registration> registrations_;  // oldest first
  std::uint32_t last_registration_ = 0;
  std::vector<Successor> successors_;
  std::map<Tier, std::uint32_t> own_readers_;  // of the memory in each tier
  absl::Status error_;
};

}  // namespace engram::poolserver
