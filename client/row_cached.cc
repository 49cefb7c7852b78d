// RowReader: rows that the cache has, and rows that it is given. Mapped rows are left out: reading
// one costs no more than looking it up.
#include <algorithm>

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
    for (std::uint32_t row = 0; row < rows; ++row) request.order[kept++] = position + row;
    request.fills[request.fill_count++] = {probe.hash, position, rows};
    misses += rows;
  }
  lookups.count = 0;
  part.open -= hits;
  counters_.cache_hits.Add(hits);
  counters_.cache_misses.Add(misses);
  return kept;
}

// The part is judged and about to be reported. What was not delivered whole is not kept, nor
// anything of a part that was cancelled or ran out of time.
void RowReader::FillCache(Request& request, Part& part) {
  if (Ending(request, part) != ReadStatus::kOk) return;
  Lookups& lookups = *lookups_;
  for (std::uint32_t at = part.fill_begin; at < part.fill_end; ++at) {
    const Request::CacheMiss& miss = request.fills[at];
    const Row* rows = &request.rows[miss.position];
    bool landed = true;
    for (std::uint32_t i = 0; i < miss.rows; ++i) {
      landed &= rows[i].state == RowState::kLanded;
      lookups.ids[i] = rows[i].id;
      lookups.from[i] = rows[i].out;
    }
    if (!landed) continue;
    options_.cache->Fill({{lookups.ids.data(), miss.rows}, lookups.from.data(), miss.hash},
                         UseOf(request.lane));
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
