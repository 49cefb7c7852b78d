#include "placement/rpc/map_watcher.h"

#include "proto/convert.h"

namespace engram::placement {

void MapWatcher::Advance() {
  MutexLock lock(&mutex_);
  Step();
}

void MapWatcher::Close(grpc::Status status) {
  MutexLock lock(&mutex_);
  if (!closing_) closing_ = std::move(status);
  pieces_.clear();
  Step();
}

void MapWatcher::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok && !closing_) closing_ = grpc::Status::CANCELLED;
  if (closing_) pieces_.clear();
  Step();
}

// Only when everything before is sent: a slow reader costs one round of deltas, not a queue.
void MapWatcher::Refill() {
  const auto deltas = loop_->history().Since(epoch_);
  if (deltas) {
    for (const auto& delta : *deltas) {
      for (v1::WatchMapResponse& piece : wire::ToWire(*delta)) pieces_.push_back(std::move(piece));
      epoch_ = delta->to;
    }
    return;
  }
  const MapDelta snapshot = loop_->snapshot()->Snapshot();
  for (v1::WatchMapResponse& piece : wire::ToWire(snapshot)) pieces_.push_back(std::move(piece));
  epoch_ = snapshot.to;
}

void MapWatcher::Step() {
  if (finished_ || writing_) return;
  if (closing_) {
    finished_ = true;
    Finish(*closing_);
    return;
  }
  if (pieces_.empty()) Refill();
  if (pieces_.empty()) return;
  writing_ = true;
  piece_ = std::move(pieces_.front());
  pieces_.pop_front();
  StartWrite(&piece_);
}

}  // namespace engram::placement
