// The life of one replica on its node: Loading, Serving, Draining, Retired, never backwards
// (ARCHITECTURE section 4, rule 3). Retirement is tell, wait, deregister, reuse, in that order:
//
//   kLoading      a loader writes its memory; nobody can read it
//   kExposing     loaded; being registered with the fabrics
//   kServing      sessions may be granted it
//   kWaiting      every session was told; some session or reader of our own may still read it
//   kHiding       nobody reads it; being deregistered from the fabrics
//   kFreed        deregistered; its memory may be reused
//
// This class knows who may still read; it does not know sessions' streams, memory or fabrics. The
// node's own readers (gather, pulls, scrubber) count as readers. Thread-confined: call from the
// owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "engram/shard_map.h"

namespace engram::poolserver {

class Replica {
 public:
  enum class Step : std::uint8_t { kLoading, kExposing, kServing, kWaiting, kHiding, kFreed };

  Replica(const ShardKey& shard, Tier tier) : shard_(shard), tier_(tier) {}

  const ShardKey& shard() const { return shard_; }
  Tier tier() const { return tier_; }
  Step step() const { return step_; }
  ReplicaState state() const;
  ReplicaReport Report() const;
  // REQUIRES: kServing. What a session is told.
  Grant MakeGrant() const;
  const std::vector<Successor>& successors() const { return successors_; }

  // Each transition REQUIRES the step that it leaves; a wrong one aborts.
  void Loaded(std::vector<std::uint32_t> block_crcs);  // kLoading -> kExposing
  void Exposed(std::vector<GrantPath> paths);          // kExposing -> kServing
  // kLoading or kExposing -> kFreed: the loader has stopped and never touches the memory again, or
  // no fabric took the memory.
  void Failed(absl::Status why);
  // REQUIRES: kServing. Its bytes are not what was loaded: retired for that reason, which the
  // report carries until it is gone.
  void Suspect(absl::Status why);
  // kServing -> kWaiting: nobody is granted it from now on. A replica that does not serve yet only
  // remembers it (retirement_wanted) until its loader has stopped or it is exposed. Idempotent.
  void Retire(std::vector<Successor> successors);
  bool retirement_wanted() const { return retirement_wanted_; }
  // REQUIRES: MayHide(). kWaiting -> kHiding.
  void Hide();
  void Hidden();  // kHiding -> kFreed

  // A session that was granted this replica may read it until it is done.
  void AddReader(SessionId session);
  void RemoveReader(SessionId session);
  // Breaks rule 3; see protocol_switches.h.
  void ForgetReaders() { readers_.clear(); }
  const std::set<SessionId>& readers() const { return readers_; }
  // REQUIRES: loaded.
  std::span<const std::uint32_t> block_crcs() const { return block_crcs_; }
  // What SumOf(block_crcs) must be; nothing when that is not known.
  std::optional<std::uint64_t> expected_sum;

  // One more reader of our own. False, and nothing counted, unless kServing.
  bool StartOwnRead();
  void FinishOwnRead();

  bool MayHide() const { return step_ == Step::kWaiting && readers_.empty() && own_readers_ == 0; }

 private:
  const ShardKey shard_;
  const Tier tier_;
  Step step_ = Step::kLoading;
  bool retirement_wanted_ = false;
  std::vector<std::uint32_t> block_crcs_;
  std::vector<GrantPath> paths_;
  std::vector<Successor> successors_;
  std::set<SessionId> readers_;
  std::uint32_t own_readers_ = 0;
  absl::Status error_;
};

}  // namespace engram::poolserver
