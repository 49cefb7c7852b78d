// The node's open targets seen as one: a replica is exposed on every fabric that reaches where it
// lies, and each of them becomes one path of its grants. Keeps which keys a replica has; decides
// nothing. Thread-safe; Expose and Hide may block (they register memory and wait for threads that
// read it).
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
#include "fabric/stream/stream_target.h"
#include "fabric/target.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver {

class Exposure {
 public:
  // `stream`: the one among them, if any, that serves rows which lie in no memory.
  explicit Exposure(std::vector<std::unique_ptr<fabric::Target>> targets,
                    fabric::stream::StreamTarget* stream = nullptr);
  ~Exposure();  // = Stop()

  // In the order of GrantPath::path.
  std::vector<PathAddress> paths() const;

  // As fabric::Target::SetIncarnation.
  void SetIncarnation(Incarnation incarnation);

  // Registers on every fabric that reaches the place's kind (Target::Reaches), or on none: a fabric
  // that refuses is an error, never a path that is silently missing. `stride` is the distance of
  // the rows. FailedPrecondition: no fabric reaches it.
  absl::StatusOr<std::vector<GrantPath>> Expose(const ShardKey& shard, Tier tier,
                                                const Place& place, std::uint32_t stride);
  // For rows that lie in no memory: on `stream` alone. FailedPrecondition: it was not asked for.
  absl::StatusOr<std::vector<GrantPath>> ExposeRows(const ShardKey& shard,
                                                    std::unique_ptr<fabric::stream::RowSource> rows,
                                                    std::uint64_t length);
  // Returns when no fabric reaches the replica any more. Unknown replicas are ignored.
  void Hide(const ShardKey& shard);

  void Admit(const SessionToken& session, const std::string& tenant = {});
  // The rows a second of each tenant that has a budget here.
  void SetBudgets(std::span<const TenantPolicy> tenants);
  void Dismiss(const SessionToken& session);
  // Replicas that are not exposed are skipped.
  void Allow(const SessionToken& session, std::span<const ShardKey> shards);
  void Disallow(const SessionToken& session, std::span<const ShardKey> shards);

  // Memory of the tier that fabrics have registered.
  std::uint64_t registered_bytes(Tier tier) const;
  void Stop();

 private:
  struct Key {
    fabric::Target* target = nullptr;
    std::uint64_t key = 0;
  };
  struct Exposed {
    std::vector<Key> keys;
    Tier tier = Tier::kDram;
    std::uint64_t registered = 0;
  };
  std::vector<Key> KeysOf(const ShardKey& shard) const;
  void Keep(const ShardKey& shard, Exposed exposed);

  const std::vector<std::unique_ptr<fabric::Target>> targets_;
  fabric::stream::StreamTarget* const stream_;
  mutable Mutex mutex_;
  std::map<ShardKey, Exposed> exposed_ ABSL_GUARDED_BY(mutex_);
  std::map<Tier, std::uint64_t> registered_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::poolserver
