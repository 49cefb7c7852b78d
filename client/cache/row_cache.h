// A cache of rows that this host has read before, keyed by the row ids themselves.
//
// The unit is an n-gram: the rows that one request makes for one (layer, order, token), or a single
// row. A unit stores all of its row ids and a hit compares all of them; a table's rows never
// change, so a hit is exact. Two kinds: a PrivateCache of one reader and a HostCache that the
// processes of a host share. What a step reads is admitted on probation; what bulk requests
// (prefill, hints) read has a small part of the cache of its own, so that a prefill does not flush
// what decode uses. Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engram/ids.h"

namespace engram::client {

// The hash of a unit: the same in every build and process that shares a cache.
inline std::uint64_t HashOf(std::span<const RowId> ids) {
  std::uint64_t sum = ids.size();
  std::uint64_t factor = 0x9e3779b97f4a7c15u;
  for (const RowId id : ids) {
    sum += (id.value() + 1) * factor;
    factor = factor * 0xd1342543de82ef95u + 2;  // stays odd
  }
  sum = (sum ^ sum >> 32) * 0xbf58476d1ce4e5b9u;
  return sum ^ sum >> 29;
}

// One unit that is wanted.
struct CacheProbe {
  std::span<const RowId> ids;
  std::byte* const* out = nullptr;  // one place a row
  std::uint64_t hash = 0;           // HashOf(ids)
  bool hit = false;                 // set by Read: every row was written to its place
  bool elsewhere = false;           // set by Read: no hit, but another process reads it now
};

// One unit that was delivered: its seals, where the table has any, were checked.
struct CacheFill {
  std::span<const RowId> ids;
  const std::byte* const* rows = nullptr;
  std::uint64_t hash = 0;
};

// Who reads: a step that an engine waits for, or prefill and hints.
enum class CacheUse : std::uint8_t { kStep, kBulk };

// A unit and how often it was hit.
struct HotNgram {
  std::uint64_t hits = 0;
  std::vector<RowId> ids;
};

class RowCache {
 public:
  virtual ~RowCache() = default;
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // Looks all of them up, many at a time so that the cache misses of the processor overlap. The
  // places of a unit that is not a hit hold anything. What is neither a hit nor elsewhere the
  // caller is taken to read, until Fill or Unread. REQUIRES: at most unit_rows() ids each.
  virtual void Read(std::span<CacheProbe> probes, CacheUse use) = 0;
  // The caller did not read the unit after all.
  virtual void Unread(std::uint64_t hash) { static_cast<void>(hash); }
  // Takes a copy; nothing happens when the unit is there already. A unit that stays whatever comes
  // is pinned; at most a part of the cache is.
  virtual void Fill(const CacheFill& unit, CacheUse use) = 0;
  virtual bool Pin(const CacheFill& unit) = 0;
  // Without counting as a use.
  virtual bool Has(std::span<const RowId> ids) const = 0;
  // The units with the most hits, at most `most` of them, the hottest first. Allocates.
  virtual std::vector<HotNgram> Hottest(std::size_t most) const = 0;

  // The most rows that a unit may have.
  std::uint32_t unit_rows() const { return unit_rows_; }
  // Units that this object has put out, since it was opened.
  std::uint64_t evictions() const { return evictions_; }
  // Of rows held.
  std::uint64_t bytes() const { return bytes_; }

 protected:
  explicit RowCache(std::uint32_t unit_rows) : unit_rows_(unit_rows) {}
  const std::uint32_t unit_rows_;
  std::uint64_t evictions_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace engram::client
