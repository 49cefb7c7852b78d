// Which session may read which region, and who reads it at the moment. The gather pins regions
// under the lock, copies without it, and unpins; Remove waits for the pins. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/stream/row_source.h"
#include "fabric/stream/throttle.h"

namespace engram::fabric::stream {

class Grants {
  // Keys are random bits: they are their own hash.
  struct KeyHash {
    std::size_t operator()(std::uint64_t key) const { return key; }
  };

 public:
  struct Region {
    std::uint64_t key = 0;
    std::uint64_t length = 0;
    const std::byte* memory = nullptr;  // source->Memory()
    std::unique_ptr<RowSource> source;
    std::uint32_t pins = 0;  // guarded by the lock of Grants
  };
  // One per read session; lives as long as a connection names it.
  struct Session {
    SessionToken token;
    std::shared_ptr<TenantMeter> meter;                            // null: nobody's budget
    bool dismissed = false;                                        // guarded by the lock of Grants
    absl::flat_hash_map<std::uint64_t, Region*, KeyHash> allowed;  // guarded by the lock of Grants
  };

  std::uint64_t Add(std::unique_ptr<RowSource> source, std::uint64_t length);
  // Returns when nothing has the region pinned any more.
  void Remove(std::uint64_t key);

  void Admit(const SessionToken& token, std::shared_ptr<TenantMeter> meter = nullptr);
  void Dismiss(const SessionToken& token);
  void Allow(const SessionToken& token, std::uint64_t key);
  void Disallow(const SessionToken& token, std::uint64_t key);

  // Null unless the token was admitted. Looks at every session, so time tells nothing.
  std::shared_ptr<Session> Find(const SessionToken& token) const;
  bool Dismissed(const Session& session) const;

  // Pins the regions that the session may read: out[i] is null where keys[i] is not allowed.
  void Pin(const Session& session, std::span<const std::uint64_t> keys, Region** out);
  void Unpin(std::span<Region* const> regions);

 private:
  mutable Mutex mutex_;
  SystemRandom random_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Region>, KeyHash> regions_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::fabric::stream
