// The node's open targets seen as one: a replica is exposed on every fabric that reaches where it
// lies, and each of them becomes one path of its grants. Keeps which keys a registration has;
// decides nothing.
//
// A fabric whose keys are bearer tokens has a domain for each tenant (Target::OpenDomain), opened
// with its first replica and kept to the end: a key of one tenant's table is worth nothing on the
// way to another's. Tables of the tenant "default" are in the target itself. A domain is a path of
// its own, numbered after those of the targets. A target or domain whose device has another address
// by now is followed by a domain that has it, under a new path number. Thread-safe; Expose, Hide
// and FollowAddresses may block (they register memory and wait for threads that read it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "fabric/stream/stream_target.h"
#include "fabric/target.h"
#include "poolserver/node_state.h"
#include "poolserver/registration.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver {

class Exposure {
 public:
  // Domains of one fabric; one more tenant is an error.
  static constexpr std::size_t kMostDomains = 64;

  // `stream`: the one among them, if any, that serves rows which lie in no memory.
  explicit Exposure(std::vector<std::unique_ptr<fabric::Target>> targets,
                    fabric::stream::StreamTarget* stream = nullptr);
  ~Exposure();  // = Stop()

  // In the order of GrantPath::path, as they can be reached now; those of domains are told with
  // what is exposed there.
  std::vector<PathAddress> paths() const;

  // As fabric::Target::SetIncarnation.
  void SetIncarnation(Incarnation incarnation);

  // Registers on every fabric that reaches the place's kind (Target::Reaches), or on none: a fabric
  // that refuses is an error, never a path that is silently missing. Where another registration of
  // the replica is of the same place, keys that are no bearer tokens are shared with it. `stride`
  // is the distance of the rows. FailedPrecondition: no fabric reaches it.
  absl::StatusOr<ReplicaExposed> Expose(const ExposeReplica& replica, const Place& place,
                                        std::uint32_t stride);
  // For rows that lie in no memory: on `stream` alone. FailedPrecondition: it was not asked for.
  absl::StatusOr<ReplicaExposed> ExposeRows(const ExposeReplica& replica,
                                            std::unique_ptr<fabric::stream::RowSource> rows,
                                            std::uint64_t length);
  // Returns when no fabric reaches the replica by keys that this registration alone had. Unknown
  // registrations are ignored.
  void Hide(const RegistrationKey& registration);

  // Looks at the addresses of the devices. Returns the paths that nobody can connect to any more:
  // what is exposed there should be exposed again, which is on the paths that follow them, and be
  // hidden. Those that could not be followed are tried again with the next call.
  struct Followed {
    std::set<std::uint32_t> left;
    std::vector<PathAddress> now;  // where they are
  };
  Followed FollowAddresses();

  void Admit(const SessionToken& session, const std::string& tenant = {});
  // The rows a second of each tenant that has a budget here.
  void SetBudgets(std::span<const TenantPolicy> tenants);
  void Dismiss(const SessionToken& session);
  // Registrations that are not exposed are skipped.
  void Allow(const SessionToken& session, std::span<const RegistrationKey> registrations);
  void Disallow(const SessionToken& session, std::span<const DisallowReplicas::Ended> ended);

  // Memory of the tier that fabrics have registered.
  std::uint64_t registered_bytes(Tier tier) const;
  void Stop();

 private:
  struct Key {
    fabric::Target* target = nullptr;
    std::uint64_t key = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Exposed {
    Tier tier = Tier::kDram;
    Place place;
    std::vector<GrantPath> paths;
    std::vector<Key> keys;  // of the paths
  };
  struct Domain {
    std::unique_ptr<fabric::Target> target;
    NumberedPath path;
    std::set<SessionToken> admitted;  // those that were allowed something there
  };
  // The target that a table of the tenant is exposed on, and its path.
  struct Way {
    fabric::Target* target = nullptr;
    std::uint32_t path = 0;
    std::optional<NumberedPath> opened = {};  // of a domain
  };
  absl::StatusOr<Way> WayOf(std::uint32_t target, const std::string& tenant);
  struct Follower {
    std::uint32_t target = 0, left = 0;  // which one, and its path
    std::string tenant;
    const fabric::Target* current = nullptr;
  };
  std::vector<Follower> Reachable() const;
  void StopUnused();
  // A path of another registration of the same place on this target, if it may be shared.
  std::optional<std::pair<GrantPath, Key>> Shared(const RegistrationKey& registration,
                                                  const Place& place,
                                                  const fabric::Target* target) const;
  absl::Status ExposeOn(std::uint32_t target, const ExposeReplica& replica, const Place& place,
                        std::uint32_t stride, Exposed* exposed, ReplicaExposed* out);
  void Keep(const RegistrationKey& registration, Exposed exposed);
  std::vector<Key> KeysOf(const RegistrationKey& registration) const;
  void AdmitToDomain(const SessionToken& session, const fabric::Target* target);

  const std::vector<std::unique_ptr<fabric::Target>> targets_;
  fabric::stream::StreamTarget* const stream_;
  mutable Mutex mutex_;
  std::map<RegistrationKey, Exposed> exposed_ ABSL_GUARDED_BY(mutex_);
  // By target and tenant. "default" has one once the target itself was left.
  std::map<std::pair<std::uint32_t, std::string>, Domain> domains_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<fabric::Target>> left_ ABSL_GUARDED_BY(mutex_);  // of domains
  std::uint32_t next_path_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Tier, std::uint64_t> registered_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::poolserver
