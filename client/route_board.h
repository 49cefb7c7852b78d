// Where pollers find the newest routes of one table, and what keeps the older ones alive for as
// long as a poller may use them. A poller opens a pass (client/quiescence.h), then takes Current();
// the snapshot stays valid until that pass is closed.
//
// Thread-safe. Current() is wait-free and takes no lock.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/quiescence.h"
#include "client/routes.h"
#include "engram/mutex.h"

namespace engram::client {

class RouteBoard {
 public:
  // Starts with `routes`, which may serve nothing. `quiescence` must outlive the board.
  RouteBoard(Quiescence* quiescence, std::shared_ptr<const Routes> routes);
  RouteBoard(const RouteBoard&) = delete;
  RouteBoard& operator=(const RouteBoard&) = delete;

  // REQUIRES: a pass of the caller is open.
  const Routes* Current() const { return current_.load(std::memory_order_seq_cst); }
  Quiescence* quiescence() const { return quiescence_; }

  // Replaces the snapshot and returns the version from which on readers use the new one. Frees the
  // snapshots that no reader can use any more.
  RouteVersion Publish(std::shared_ptr<const Routes> routes);
  // For those without a pass: builders of the next snapshot, people.
  std::shared_ptr<const Routes> Shared() const;

 private:
  struct Kept {
    RouteVersion replaced;  // readers past this version do not use it
    std::shared_ptr<const Routes> routes;
  };

  Quiescence* const quiescence_;
  std::atomic<const Routes*> current_;
  mutable Mutex mutex_;
  std::shared_ptr<const Routes> newest_ ABSL_GUARDED_BY(mutex_);
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::client
