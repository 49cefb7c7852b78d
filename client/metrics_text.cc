#include "client/metrics_text.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace engram::client {
namespace {

std::string Quoted(const std::string& value) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// One exposition: a family is written whole, before the next.
class Exposition {
 public:
  explicit Exposition(std::span<const TableNumbers> tables) {
    for (const TableNumbers& one : tables) {
      TableNumbers& sum = sums_[{one.pool, one.table}];
      sum.pool = one.pool;
      sum.table = one.table;
      sum.map_epoch = std::max(sum.map_epoch, one.map_epoch);
      AddTo(one.totals, &sum.totals);
    }
  }

  // `write` (table, labels of the table) writes the family's series of one table.
  template <class Write>
  void Family(std::string_view name, std::string_view type, std::string_view help, Write write) {
    absl::StrAppend(&text_, "# HELP ", std::string(name), " ", std::string(help), "\n# TYPE ",
                    std::string(name), " ", std::string(type), "\n");
    for (const auto& [key, table] : sums_) {
      labels_ = absl::StrCat("pool=", Quoted(table.pool), ",table=", Quoted(table.table));
      name_ = name;
      write(table);
    }
  }
  // Within `write`: one series. `more`: further labels, after a comma; `suffix`: of a histogram.
  void Series(std::string_view more, double value, std::string_view suffix = "") {
    absl::StrAppend(&text_, name_, std::string(suffix), "{", labels_, std::string(more), "} ");
    // Whole numbers in full: counters pass what six digits can tell apart.
    if (value == static_cast<double>(static_cast<std::uint64_t>(value))) {
      absl::StrAppend(&text_, static_cast<std::uint64_t>(value), "\n");
    } else {
      absl::StrAppend(&text_, value, "\n");
    }
  }
  void Counter(std::string_view name, std::string_view help, std::uint64_t ReadTotals::*number) {
    Family(name, "counter", help, [&](const TableNumbers& table) {
      Series("", static_cast<double>(table.totals.*number));
    });
  }
  // The same number by the values of one label.
  void Counters(std::string_view name, std::string_view help, std::string_view label,
                std::span<const std::pair<std::string_view, std::uint64_t ReadTotals::*>> by) {
    Family(name, "counter", help, [&](const TableNumbers& table) {
      for (const auto& [value, number] : by) {
        Series(absl::StrCat(",", std::string(label), "=\"", std::string(value), "\""),
               static_cast<double>(table.totals.*number));
      }
    });
  }

  std::string Text() && { return std::move(text_); }

 private:
  std::map<std::pair<std::string, std::string>, TableNumbers> sums_;
  std::string text_, labels_, name_;
};

std::string FabricLabel(std::size_t kind) {
  return absl::StrCat(",fabric=\"", std::string(Name(static_cast<FabricKind>(kind))), "\"");
}

void WriteRows(Exposition& out) {
  out.Family("engram_client_rows_total", "counter",
             "Rows asked for, by the fabric and how it ended.", [&](const TableNumbers& table) {
               for (std::size_t kind = 1; kind < kFabricKinds; ++kind) {
                 for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome) {
                   out.Series(
                       absl::StrCat(FabricLabel(kind), ",outcome=\"",
                                    std::string(Name(static_cast<ReadStatus>(outcome))), "\""),
                       static_cast<double>(table.totals.rows[kind][outcome]));
                 }
               }
             });
}

void WriteReadSeconds(Exposition& out) {
  out.Family(
      "engram_client_read_seconds", "histogram",
      "From the start of a batch of rows to its last one, by fabric.",
      [&](const TableNumbers& table) {
        for (std::size_t kind = 1; kind < kFabricKinds; ++kind) {
          const std::string fabric = FabricLabel(kind);
          std::uint64_t count = 0;
          for (std::size_t bucket = 0; bucket < kReadSecondsBuckets; ++bucket) {
            count += table.totals.read_seconds[kind][bucket];
            const bool last = bucket + 1 == kReadSecondsBuckets;
            const double bound = static_cast<double>(std::uint64_t{1} << (bucket + 8)) / 1e9;
            out.Series(absl::StrCat(fabric, ",le=\"", last ? "+Inf" : absl::StrCat(bound), "\""),
                       static_cast<double>(count), "_bucket");
          }
          out.Series(fabric, static_cast<double>(table.totals.read_ns_sum[kind]) / 1e9, "_sum");
          out.Series(fabric, static_cast<double>(count), "_count");
        }
      });
}

}  // namespace

std::string MetricsText(std::span<const TableNumbers> tables) {
  using Totals = ReadTotals;
  using By = std::pair<std::string_view, std::uint64_t Totals::*>;
  Exposition out(tables);
  WriteRows(out);
  WriteReadSeconds(out);
  const By delivered[] = {{"delivered", &Totals::rows_delivered},
                          {"failed", &Totals::rows_failed},
                          {"skipped", &Totals::rows_skipped}};
  out.Counters("engram_client_delivered_rows_total",
               "Rows handed to the caller: read, poisoned, zeroed.", "result", delivered);
  out.Counter("engram_client_duplicates_total", "Rows copied instead of read.",
              &Totals::duplicates);
  out.Counter("engram_client_joined_rows_total",
              "Rows copied from a read that another step had under way.", &Totals::rows_joined);
  out.Counter("engram_client_seal_failures_total", "Rows whose seal was wrong.",
              &Totals::seal_failures);
  out.Counter("engram_client_retries_total", "Rows read again.", &Totals::retries);
  out.Counter("engram_client_leases_expired_total", "Batches read again because a lease ran out.",
              &Totals::leases_expired);
  out.Counter("engram_client_peers_abandoned_total", "Nodes whose reads were flushed.",
              &Totals::abandoned);
  const By received[] = {{"received", &Totals::bytes_received}};
  out.Counters("engram_client_bytes_total", "Bytes of rows and seals over fabrics.", "direction",
               received);
  const By looked_up[] = {{"hit", &Totals::cache_hits}, {"miss", &Totals::cache_misses}};
  out.Counters("engram_client_cache_rows_total", "Rows looked up in the row cache.", "result",
               looked_up);
  out.Counter("engram_client_cache_evictions_total", "N-grams that made room for others.",
              &Totals::cache_evictions);
  const By layers[] = {{"ready", &Totals::layers_ready},
                       {"late", &Totals::layers_late},
                       {"failed", &Totals::layers_failed},
                       {"cancelled", &Totals::layers_cancelled}};
  out.Counters("engram_prefetch_layers_total",
               "Layers of prefetched steps; a late one is counted as ready or failed as well.",
               "outcome", layers);
  out.Counter("engram_rows_late_total", "Rows of layers that were not ready when they were needed.",
              &Totals::rows_late);
  const By hedges[] = {{"started", &Totals::hedges_started}, {"won", &Totals::hedges_won}};
  out.Counters("engram_client_hedged_rows_total", "Late rows asked of another replica as well.",
               "result", hedges);
  out.Family("engram_client_cache_bytes", "gauge", "Of the rows that are cached now.",
             [&](const TableNumbers& table) {
               out.Series("", static_cast<double>(table.totals.cache_bytes));
             });
  out.Family("engram_map_epoch", "gauge", "Of the newest shard map.",
             [&](const TableNumbers& table) {
               out.Series("", static_cast<double>(table.map_epoch.value()));
             });
  return std::move(out).Text();
}

}  // namespace engram::client
