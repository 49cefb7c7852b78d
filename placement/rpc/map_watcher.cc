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

void MapWatcher::Queue(const ClusterState& state, MapDelta delta) {
  if (caller_ && caller_->role == Role::kClient) {
    const auto hidden = [&](const TableUid& uid) {
      const TableEntry* table = state.FindTable(uid);
      return table == nullptr || !state.MayRead(caller_->tenant, table->record);
    };
    std::erase_if(delta.tables, [&](const MapTable& table) { return hidden(table.uid); });
    std::erase_if(delta.chunks, [&](const MapChunk& chunk) { return hidden(chunk.table); });
  }
  epoch_ = delta.to;
  for (v1::WatchMapResponse& piece : wire::ToWire(delta)) pieces_.push_back(std::move(piece));
}

// Only when everything before is sent: a slow reader costs one round of deltas, not a queue.
void MapWatcher::Refill() {
  const auto deltas = loop_->history().Since(epoch_);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  std::vector<std::string> granted;
  if (caller_) granted = state->TenantNamed(caller_->tenant).granted_tables;
  const bool same = !granted_ || *granted_ == granted;
  granted_ = std::move(granted);
  if (deltas && same) {
    for (const auto& delta : *deltas) {
      // The history may be ahead of the state that says what may be seen: the rest comes with it.
      if (caller_ && delta->to > state->epoch) break;
      Queue(*state, *delta);
    }
  } else {
    Queue(*state, state->Snapshot());
  }
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
