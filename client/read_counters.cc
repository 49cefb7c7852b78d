#include "client/read_counters.h"

namespace engram::client {

namespace {

std::uint64_t Value(const Count& count) { return count.value(); }
std::uint64_t Value(std::uint64_t count) { return count; }

template <class Number>
void Add(const ReadNumbers<Number>& counters, ReadTotals* totals) {
  for (std::size_t fabric = 0; fabric < kFabricKinds; ++fabric) {
    for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome)
      totals->rows[fabric][outcome] += Value(counters.rows[fabric][outcome]);
  }
  totals->rows_delivered += Value(counters.rows_delivered);
  totals->rows_failed += Value(counters.rows_failed);
  totals->rows_skipped += Value(counters.rows_skipped);
  totals->duplicates += Value(counters.duplicates);
  totals->seal_failures += Value(counters.seal_failures);
  totals->retries += Value(counters.retries);
  totals->leases_expired += Value(counters.leases_expired);
  totals->abandoned += Value(counters.abandoned);
  totals->requests += Value(counters.requests);
  totals->bytes_received += Value(counters.bytes_received);
  totals->layers_ready += Value(counters.layers_ready);
  totals->layers_failed += Value(counters.layers_failed);
  totals->layers_cancelled += Value(counters.layers_cancelled);
  totals->layers_late += Value(counters.layers_late);
  totals->rows_late += Value(counters.rows_late);
  totals->hedges_started += Value(counters.hedges_started);
  totals->hedges_won += Value(counters.hedges_won);
  totals->rows_joined += Value(counters.rows_joined);
  totals->cache_hits += Value(counters.cache_hits);
  totals->cache_misses += Value(counters.cache_misses);
  totals->cache_evictions += Value(counters.cache_evictions);
  totals->cache_bytes += Value(counters.cache_bytes);
  totals->rows_hinted += Value(counters.rows_hinted);
  for (std::size_t fabric = 0; fabric < kFabricKinds; ++fabric) {
    for (std::size_t i = 0; i < kReadSecondsBuckets; ++i)
      totals->read_seconds[fabric][i] += Value(counters.read_seconds[fabric][i]);
    totals->read_ns_sum[fabric] += Value(counters.read_ns_sum[fabric]);
  }
}

}  // namespace

void AddTo(const ReadCounters& counters, ReadTotals* totals) { Add(counters, totals); }
void AddTo(const ReadTotals& counters, ReadTotals* totals) { Add(counters, totals); }

}  // namespace engram::client
