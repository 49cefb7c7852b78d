// Which session may import which keys, for targets that ask at the import and not at each read.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "engram/ids.h"

namespace engram::fabric {

class SessionKeys {
 public:
  void Admit(const SessionToken& session) { sessions_[session]; }
  void Dismiss(const SessionToken& session) { sessions_.erase(session); }
  // Of sessions that were admitted; others are ignored.
  void Allow(const SessionToken& session, std::uint64_t key) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end()) found->second.insert(key);
  }
  void Disallow(const SessionToken& session, std::uint64_t key) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end()) found->second.erase(key);
  }
  // The key is no more.
  void Forget(std::uint64_t key) {
    for (auto& [session, keys] : sessions_) keys.erase(key);
  }

  bool Admits(const SessionToken& session) const { return sessions_.count(session) > 0; }
  bool Allows(const SessionToken& session, std::uint64_t key) const {
    const auto found = sessions_.find(session);
    return found != sessions_.end() && found->second.count(key) > 0;
  }

 private:
  std::map<SessionToken, std::set<std::uint64_t>> sessions_;
};

}  // namespace engram::fabric
