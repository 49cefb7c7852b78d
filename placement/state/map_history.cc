#include "placement/state/map_history.h"

#include "engram/check.h"

namespace engram::placement {

void MapHistory::Restart(Epoch epoch) {
  MutexLock lock(&mutex_);
  newest_ = epoch;
  chunks_ = 0;
  deltas_.clear();
}

void MapHistory::Append(std::shared_ptr<const MapDelta> delta) {
  MutexLock lock(&mutex_);
  ENGRAM_CHECK(delta->from == newest_);
  newest_ = delta->to;
  chunks_ += delta->chunks.size();
  deltas_.push_back(std::move(delta));
  while (deltas_.size() > max_deltas_ || (chunks_ > max_chunks_ && deltas_.size() > 1)) {
    chunks_ -= deltas_.front()->chunks.size();
    deltas_.pop_front();
  }
}

std::optional<std::vector<std::shared_ptr<const MapDelta>>> MapHistory::Since(Epoch from) const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<const MapDelta>> out;
  if (from == newest_) return out;
  for (const auto& delta : deltas_) {
    if (delta->from >= from) out.push_back(delta);
  }
  if (out.empty() || out.front()->from != from) return std::nullopt;
  return out;
}

Epoch MapHistory::newest() const {
  MutexLock lock(&mutex_);
  return newest_;
}

}  // namespace engram::placement
