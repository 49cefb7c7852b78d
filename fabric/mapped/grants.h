// What a mapped target has exposed, and to whom: regions, the slabs they lie in, sessions and what
// each may read. No sockets. Thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/session_keys.h"
#include "fabric/target.h"

namespace engram::fabric::mapped {

struct ImportedSlab {
  int fd = -1;  // read-only, a duplicate: the caller closes it
  std::uint64_t slab = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class Grants {
 public:
  Grants() = default;
  ~Grants();

  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory);
  void Hide(std::uint64_t key);
  void Admit(const SessionToken& session);
  void Dismiss(const SessionToken& session);
  void Allow(const SessionToken& session, std::uint64_t key);
  void Disallow(const SessionToken& session, std::uint64_t key);
  bool Admits(const SessionToken& session);
  // PermissionDenied: the session may not read the key, or there is none such.
  absl::StatusOr<ImportedSlab> Import(const SessionToken& session, std::uint64_t key);

 private:
  struct SharedSlab {
    std::uint64_t id = 0;
    int read_only_fd = -1;
    std::uint32_t regions = 0;
  };
  absl::StatusOr<SharedSlab*> Share(const Slab& slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  SystemRandom random_ ABSL_GUARDED_BY(mutex_);
  std::map<const Slab*, SharedSlab> slabs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, ExposedMemory> regions_ ABSL_GUARDED_BY(mutex_);
  SessionKeys sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::fabric::mapped
