// RowReader: rows that the cache has, and rows that it is given. Mapped rows are left out: reading
// one costs no more than looking it up.
#include <algorithm>
#include <array>
#include <utility>

#include "client/read_request.h"
#include "client/row_lookups.h"
#include "client/row_reader.h"

namespace engram::client {
namespace {

CacheUse UseOf(fabric::Lane lane) {
  return lane == fabric::Lane::kBulk ? CacheUse::kBulk : CacheUse::kStep;
}

}  // namespace

// Rows of the part that are still to be read, from order[order_begin] on, are looked up n-gram by
// n-gram; those that are not there stay in the order.
void RowReader::TakeCached(Request& request, Part& part, std::uint32_t ngram_rows,
                           std::uint32_t order_begin) {
  Lookups& lookups = *lookups_;
  std::uint32_t kept = order_begin;
  for (std::uint32_t at = order_begin; at < request.order_count;) {
    const std::uint32_t position = request.order[at];
    const Row* rows = &request.rows[position];
    if (rows->route->path_class == PathClass::kMapped) {
      if (lookups.count > 0) kept = LookUp(request, part, kept);
      request.order[kept++] = position;
      ++at;
      continue;
    }
    std::uint32_t count = UnitAt(request, part, ngram_rows, at);
    if (count > options_.cache->unit_rows()) count = 1;
    lookups.Add(position, {rows, count});
    at += count;
    if (lookups.count == Lookups::kMost) kept = LookUp(request, part, kept);
  }
  request.order_count = lookups.count > 0 ? LookUp(request, part, kept) : kept;
  part.fill_end = request.fill_count;
}

// Returns how many positions the order has now, `kept` before.
std::uint32_t RowReader::LookUp(Request& request, Part& part, std::uint32_t kept) {
  Lookups& lookups = *lookups_;
  options_.cache->Read({lookups.probes.data(), lookups.count}, UseOf(request.lane));
  std::uint32_t hits = 0, misses = 0;
  for (std::uint32_t i = 0; i < lookups.count; ++i) {
    const CacheProbe& probe = lookups.probes[i];
    const std::uint32_t position = lookups.positions[i];
    const auto rows = static_cast<std::uint32_t>(probe.ids.size());
    if (probe.hit) {
      for (std::uint32_t row = 0; row < rows; ++row)
        request.rows[position + row].state = RowState::kCached;
      hits += rows;
      continue;
    }
    const std::uint32_t fill = request.fill_count++;
    request.fills[fill] = {probe.hash, position, rows};
    if (probe.elsewhere && request.started < request.await_until) {
      for (std::uint32_t row = 0; row < rows; ++row)
        request.rows[position + row].state = RowState::kJoined;
      request.awaited[request.awaited_count++] = fill;
      continue;
    }
    for (std::uint32_t row = 0; row < rows; ++row) request.order[kept++] = position + row;
    misses += rows;
  }
  lookups.count = 0;
  part.open -= hits;
  counters_.cache_hits.Add(hits);
  counters_.cache_misses.Add(misses);
  return kept;
}

// Whether what other processes read has come. What does not come, or not soon, is read: at once,
// for no read of it failed.
void RowReader::LookAgain(Request& request, Instant now) {
  // Before anything is waited for: the other process may wait for what is here.
  FillLanded(request, now);
  request.look_at = now + std::max(kFirstLook, (now - request.started) / kLooksShare);
  const bool patient = now < request.await_until;
  const std::uint32_t count = request.awaited_count, before = request.retry_count;
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < count;) {
    const std::uint32_t some = std::min(count - at, Lookups::kMost);
    kept = TakeAwaited(request, {&request.awaited[at], some}, patient, kept);
    at += some;
  }
  request.awaited_count = kept;
  if (request.retry_count > before) {
    request.retry_at = now;
    request.rounds = 0;
  }
  for (std::uint32_t i = 0; i < request.part_count && request.parts_open > 0; ++i) {
    if (request.parts[i].open == 0) Settle(request, request.parts[i]);
  }
}

// Those that are waited for longer go to awaited[kept] and on; returns the new `kept`.
// REQUIRES: at most Lookups::kMost of them.
std::uint32_t RowReader::TakeAwaited(Request& request, std::span<const std::uint32_t> fills,
                                     bool patient, std::uint32_t kept) {
  Lookups& lookups = *lookups_;
  std::array<std::uint32_t, Lookups::kMost> looked_up;
  for (const std::uint32_t fill : fills) {
    const Request::CacheMiss& miss = request.fills[fill];
    const Row* rows = &request.rows[miss.position];
    if (rows->state != RowState::kJoined) continue;  // cancelled, or late and read by now
    looked_up[lookups.count] = fill;
    lookups.Add(miss.position, {rows, miss.rows});
  }
  const std::uint32_t count = std::exchange(lookups.count, 0);
  options_.cache->Read({lookups.probes.data(), count}, UseOf(request.lane));
  for (std::uint32_t i = 0; i < count; ++i) {
    const CacheProbe& probe = lookups.probes[i];
    if (probe.elsewhere && patient) {
      request.awaited[kept++] = looked_up[i];
      continue;
    }
    const std::uint32_t position = lookups.positions[i];
    const auto rows = static_cast<std::uint32_t>(probe.ids.size());
    (probe.hit ? counters_.cache_hits : counters_.cache_misses).Add(rows);
    if (probe.hit) request.parts[request.rows[position].part].open -= rows;
    for (std::uint32_t row = position; row < position + rows; ++row) {
      request.rows[row].state = probe.hit ? RowState::kCached : RowState::kQueued;
      if (!probe.hit) request.retry[request.retry_count++] = row;
    }
  }
  return kept;
}

// Of parts that wait for another process, what landed and is good: judged as at delivery.
void RowReader::FillLanded(Request& request, Instant now) {
  CheckSeals(request);
  for (std::uint32_t i = 0; i < request.part_count; ++i) {
    Part& part = request.parts[i];
    if (part.state == PartState::kPending && Ending(request, part) == ReadStatus::kOk &&
        request.routes->LeasesValid(part.session_bits, now))
      FillUnits(request, part);
  }
  CountCache();
}

void RowReader::FillUnits(Request& request, const Part& part) {
  Lookups& lookups = *lookups_;
  for (std::uint32_t at = part.fill_begin; at < part.fill_end; ++at) {
    Request::CacheMiss& miss = request.fills[at];
    const Row* rows = &request.rows[miss.position];
    bool landed = miss.rows > 0;
    for (std::uint32_t i = 0; landed && i < miss.rows; ++i) {
      landed = rows[i].state == RowState::kLanded;
      lookups.ids[i] = rows[i].id;
      lookups.from[i] = request.Landing(rows[i]);
    }
    if (!landed) continue;
    options_.cache->Fill({{lookups.ids.data(), miss.rows}, lookups.from.data(), miss.hash},
                         UseOf(request.lane));
    miss.rows = 0;
  }
}

// The part is judged and about to be reported. What was not delivered whole is not kept, nor
// anything of a part that was cancelled or ran out of time; others may read it.
void RowReader::FillCache(Request& request, Part& part) {
  if (Ending(request, part) == ReadStatus::kOk) FillUnits(request, part);
  for (std::uint32_t at = part.fill_begin; at < part.fill_end; ++at) {
    if (request.fills[at].rows > 0) options_.cache->Unread(request.fills[at].hash);
  }
  CountCache();
}

bool RowReader::UsesCache() {
  if (options_.cache == nullptr) return false;
  const RouteVersion pass = passes_.Enter();
  const auto groups = options_.board->Current()->groups();
  const bool messages = std::any_of(groups.begin(), groups.end(), [](const RouteGroup& group) {
    return group.path_class != PathClass::kMapped;
  });
  passes_.Exit(pass);
  return messages;
}

bool RowReader::PinCached(const CacheFill& unit) {
  const bool pinned = options_.cache->Pin(unit);
  CountCache();
  return pinned;
}

void RowReader::CountCache() {
  const RowCache& cache = *options_.cache;
  counters_.cache_bytes.Add(cache.bytes() - cache_bytes_);
  counters_.cache_evictions.Add(cache.evictions() - cache_evictions_);
  cache_bytes_ = cache.bytes();
  cache_evictions_ = cache.evictions();
}

}  // namespace engram::client
