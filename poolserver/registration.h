// One registration of a replica's bytes with the fabrics: the keys under which sessions read it. A
// replica is granted under its newest registration; an older one retires as a replica does (tell,
// wait, deregister), while the bytes are read on under the newer one. A replica is registered anew
// when keys that are bearer tokens are known to somebody who must not read any more, and with other
// memory when it has moved to another tier of its node. Thread-compatible.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engram/ids.h"
#include "engram/session.h"
#include "engram/shard_map.h"

namespace engram::poolserver {

// Numbers the registrations of one replica, from 1.
using RegistrationId = StrongId<struct RegistrationIdTag, std::uint32_t>;

struct RegistrationKey {
  ShardKey shard;
  RegistrationId registration;
  friend auto operator<=>(const RegistrationKey&, const RegistrationKey&) = default;
};

struct Registration {
  //   kExposing  being registered with the fabrics
  //   kServing   sessions are granted it; one at most
  //   kWaiting   every session was told; some session may still read under it
  //   kHiding    nobody does; being deregistered
  enum class Step : std::uint8_t { kExposing, kServing, kWaiting, kHiding };

  RegistrationId id;
  Tier tier = Tier::kDram;  // registrations of one tier are of the same memory
  Step step = Step::kExposing;
  std::vector<GrantPath> paths = {};
  bool bearer_keys = false;         // whoever knows one of its keys can read
  std::set<std::string> told = {};  // tenants whose clients were ever told them
  std::set<SessionId> readers = {};
};

}  // namespace engram::poolserver
