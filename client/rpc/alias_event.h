// The descriptor by which an engine hears that the alias of a table has moved: readable for as long
// as another version is pending. It carries no bytes for the engine and misses nothing, however
// often the alias moves; any number of threads may poll it. Thread-safe.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/mutex.h"

namespace engram::client {

class AliasEvent {
 public:
  AliasEvent() = default;
  ~AliasEvent();
  AliasEvent(const AliasEvent&) = delete;
  AliasEvent& operator=(const AliasEvent&) = delete;

  // Made at the first call; lives as long as the object. ResourceExhausted: no descriptor is left.
  absl::StatusOr<int> Descriptor();
  void Set(bool pending);

 private:
  Mutex mutex_;
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace engram::client
