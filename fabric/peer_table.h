// The peers of a fabric by their numbers, which are never given twice. Shared with the fabric's
// queues, which may outlive it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/fabric.h"

namespace engram::fabric {

template <class Peer>
class PeerTable {
 public:
  PeerId Add(std::shared_ptr<Peer> peer) {
    MutexLock lock(&mutex_);
    peers_.push_back(std::move(peer));
    return PeerId(static_cast<std::uint32_t>(peers_.size()));
  }
  // Returns what was there.
  std::shared_ptr<Peer> Remove(PeerId id) {
    MutexLock lock(&mutex_);
    if (id.value() == 0 || id.value() > peers_.size()) return nullptr;
    return std::exchange(peers_[id.value() - 1], nullptr);
  }
  std::shared_ptr<Peer> Find(PeerId id) const {
    MutexLock lock(&mutex_);
    if (id.value() == 0 || id.value() > peers_.size()) return nullptr;
    return peers_[id.value() - 1];
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);  // index = id - 1
};

}  // namespace engram::fabric
