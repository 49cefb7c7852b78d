#include "client/read_counters.h"

namespace engram::client {

void AddTo(const ReadCounters& counters, ReadTotals* totals) {
  for (std::size_t fabric = 0; fabric < kFabricKinds; ++fabric) {
    for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome)
      totals->rows[fabric][outcome] += counters.rows[fabric][outcome].value();
  }
  totals->rows_delivered += counters.rows_delivered.value();
  totals->rows_failed += counters.rows_failed.value();
  totals->rows_skipped += counters.rows_skipped.value();
  totals->duplicates += counters.duplicates.value();
  totals->seal_failures += counters.seal_failures.value();
  totals->retries += counters.retries.value();
  totals->leases_expired += counters.leases_expired.value();
  totals->abandoned += counters.abandoned.value();
  totals->requests += counters.requests.value();
  totals->bytes_received += counters.bytes_received.value();
  totals->layers_ready += counters.layers_ready.value();
  totals->layers_failed += counters.layers_failed.value();
  totals->layers_cancelled += counters.layers_cancelled.value();
  totals->layers_late += counters.layers_late.value();
  totals->rows_late += counters.rows_late.value();
  totals->hedges_started += counters.hedges_started.value();
  totals->hedges_won += counters.hedges_won.value();
  totals->rows_joined += counters.rows_joined.value();
  totals->cache_hits += counters.cache_hits.value();
  totals->cache_misses += counters.cache_misses.value();
  totals->cache_evictions += counters.cache_evictions.value();
  totals->cache_bytes += counters.cache_bytes.value();
  totals->rows_hinted += counters.rows_hinted.value();
  for (std::size_t fabric = 0; fabric < kFabricKinds; ++fabric) {
    for (std::size_t i = 0; i < kReadSecondsBuckets; ++i)
      totals->read_seconds[fabric][i] += counters.read_seconds[fabric][i].value();
    totals->read_ns_sum[fabric] += counters.read_ns_sum[fabric].value();
  }
}

}  // namespace engram::client
