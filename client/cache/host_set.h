// Which unit of a set makes room: the policy of PrivateCache inside the 16 places of one set of a
// host cache. Places are on probation (3 of 16), in the main part, or for bulk (2); the oldest of a
// part that has too many goes, unless it was used: then it goes on in the main part. What was put
// out is remembered by tag.
//
// Lives in memory that several processes change at once, without a lock: what two do to one word at
// once may cost a unit its place sooner or later than it should, never more. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/cache/host_readings.h"
#include "client/cache/row_cache.h"

namespace engram::client {

struct HostSet {
  static constexpr std::uint32_t kWays = 16;
  static constexpr std::uint32_t kGhosts = 30;
  static constexpr std::uint32_t kMostProbation = 3, kMostBulk = 2, kMostPinned = 4;
  static constexpr std::uint32_t kNoWay = kWays;
  enum Part : std::uint32_t { kProbation = 0, kMain = 1, kBulk = 2, kPinned = 3 };

  using Word = std::atomic<std::uint32_t>;
  Word tags[kWays];    // 0: nothing there
  Word states[kWays];  // uses (2 bits), part (2 bits), age
  Word ghosts[kGhosts];
  Word clock, next_ghost;
  HostReadings readings;

  static std::uint32_t TagOf(std::uint64_t hash) { return static_cast<std::uint32_t>(hash) | 1; }

  // Of the unit in `way`.
  void Use(std::uint32_t way);
  // The way that the next unit of `part` takes, its old unit remembered; kNoWay: all are pinned.
  // *evicted tells whether there was one.
  std::uint32_t MakeRoom(Part part, bool* evicted);
  // Whether a unit with this tag was put out lately; it is forgotten.
  bool TakeGhost(std::uint32_t tag);
  void Place(std::uint32_t way, std::uint32_t tag, Part part);
  std::uint32_t Count(Part part) const;
  Part PartOf(std::uint32_t way) const;

 private:
  std::uint32_t Oldest(Part part) const;
  Part VictimPart(Part wanted) const;
};
static_assert(sizeof(HostSet) == 320);

}  // namespace engram::client
