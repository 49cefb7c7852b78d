// Which published routes the readers of this process may still be reading under: how a session
// learns that a withdrawn replica has no reader left (ARCHITECTURE section 4, rule 3).
//
// Routes (who is read how) are published as immutable snapshots by one side and used by pollers on
// the other. Publishing: store the new snapshot where readers find it, then Publish(). Reading:
//
//   const RouteVersion pass = reader.Enter();   // before looking at the snapshot
//   ... look up the snapshot, start reads, hedges, retries ...
//   reader.Exit(pass);                          // every read started since has completed or was
//                                               // flushed, hedges and cancelled tickets included
//
// Past(v) is true when no reader can start a read under routes older than v and every read that was
// started under them has ended. A poller may have several passes open at once. Enter and Exit are
// wait-free in practice (a store, and a second look that repeats only if routes changed meanwhile),
// take no lock and allocate nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/ids.h"
#include "engram/mutex.h"

namespace engram::client {

// Counts publications of routes, over all sessions of the process; from 1.
using RouteVersion = StrongId<struct RouteVersionTag>;

class QuiescenceReader;

// Thread-safe.
class Quiescence {
 public:
  // The routes stored before this call have the version that is returned.
  RouteVersion Publish();
  RouteVersion current() const { return RouteVersion(current_.load(std::memory_order_seq_cst)); }
  // True when every reader is past all routes older than `version`, for good. REQUIRES: `version`
  // was published.
  bool Past(RouteVersion version) const;
  // The oldest version that a reader may still use; current() when none reads. Snapshots older than
  // it may be freed.
  RouteVersion Oldest() const;

 private:
  friend class QuiescenceReader;
  static constexpr std::uint64_t kIdle = ~std::uint64_t{0};
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> oldest{kIdle};
  };
  void Add(const Slot* slot);
  void Remove(const Slot* slot);

  std::atomic<std::uint64_t> current_{1};
  mutable Mutex mutex_;
  std::vector<const Slot*> slots_ ABSL_GUARDED_BY(mutex_);
};

// One poller's side. Thread-confined: call from the owner thread only. (Made and destroyed on any
// thread, while no pass is open.)
class QuiescenceReader {
 public:
  // `quiescence` must outlive the object.
  explicit QuiescenceReader(Quiescence* quiescence);
  ~QuiescenceReader();
  QuiescenceReader(const QuiescenceReader&) = delete;
  QuiescenceReader& operator=(const QuiescenceReader&) = delete;

  // Opens a pass: the routes of the returned version, or newer ones, may be used until Exit.
  RouteVersion Enter();
  // Closes one pass. REQUIRES: `pass` came from Enter and nothing started under it is outstanding.
  void Exit(RouteVersion pass);
  std::uint32_t open_passes() const { return open_; }

 private:
  // Passes by version, oldest first. More versions at once than fit are counted as older than they
  // are, which delays acknowledgements and is never wrong.
  struct Passes {
    std::uint64_t version = 0;
    std::uint32_t count = 0;
  };
  static constexpr std::size_t kVersions = 16;

  Quiescence* const quiescence_;
  Quiescence::Slot slot_;
  std::array<Passes, kVersions> passes_;
  std::size_t versions_ = 0;
  std::uint32_t open_ = 0;
};

}  // namespace engram::client
