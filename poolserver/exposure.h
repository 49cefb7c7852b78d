// The node's open targets seen as one: a replica is exposed on every fabric, and each fabric
// becomes one path of its grants. Keeps which keys a replica has; decides nothing. Thread-safe;
// Expose and Hide may block (they register memory and wait for threads that read it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "fabric/target.h"
#include "poolserver/arena.h"

namespace engram::poolserver {

class Exposure {
 public:
  explicit Exposure(std::vector<std::unique_ptr<fabric::Target>> targets);
  ~Exposure();  // = Stop()

  // In the order of GrantPath::path.
  std::vector<PathAddress> paths() const;

  // As fabric::Target::SetIncarnation.
  void SetIncarnation(Incarnation incarnation);

  // Registers on every fabric, or on none: a fabric that was asked for and cannot reach a replica
  // is an error, never a path that is silently missing. `stride` is the distance of its rows.
  absl::StatusOr<std::vector<GrantPath>> Expose(const ShardKey& shard, const Place& place,
                                                std::uint32_t stride);
  // Returns when no fabric reaches the replica any more. Unknown replicas are ignored.
  void Hide(const ShardKey& shard);

  void Admit(const SessionToken& session, const std::string& tenant = {});
  // The rows a second of each tenant that has a budget here.
  void SetBudgets(std::span<const TenantPolicy> tenants);
  void Dismiss(const SessionToken& session);
  // Replicas that are not exposed are skipped.
  void Allow(const SessionToken& session, std::span<const ShardKey> shards);
  void Disallow(const SessionToken& session, std::span<const ShardKey> shards);

  std::uint64_t registered_bytes() const;
  void Stop();

 private:
  struct Exposed {
    std::vector<std::uint64_t> keys;  // one per target
    std::uint64_t bytes = 0;
  };
  std::vector<std::uint64_t> KeysOf(const ShardKey& shard) const;

  const std::vector<std::unique_ptr<fabric::Target>> targets_;
  mutable Mutex mutex_;
  std::map<ShardKey, Exposed> exposed_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t registered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::poolserver
