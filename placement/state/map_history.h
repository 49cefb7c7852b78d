// The last deltas of the shard map, for watchers that follow it.
// Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/shard_map.h"

namespace engram::placement {

class MapHistory {
 public:
  // `epoch`: that of the map before the first delta. Keeps at most `deltas` deltas, and fewer when
  // together they have more than `chunks` chunks.
  explicit MapHistory(Epoch epoch, std::size_t deltas = 512, std::size_t chunks = 16'384)
      : max_deltas_(deltas), max_chunks_(chunks), newest_(epoch) {}

  // Another controller's changes lie between: forgets everything; `epoch` as above.
  void Restart(Epoch epoch);
  // REQUIRES: delta->from is newest().
  void Append(std::shared_ptr<const MapDelta> delta);
  // What leads from `from` to the newest epoch, in order; none when that is not known here (too far
  // back, or an epoch of another store), and the watcher needs a snapshot. Append before the state
  // of that epoch is published, so that a snapshot is never newer than the history.
  std::optional<std::vector<std::shared_ptr<const MapDelta>>> Since(Epoch from) const;
  Epoch newest() const;

 private:
  const std::size_t max_deltas_, max_chunks_;
  mutable Mutex mutex_;
  Epoch newest_ ABSL_GUARDED_BY(mutex_);
  std::size_t chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<const MapDelta>> deltas_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
