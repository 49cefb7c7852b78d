// The insides of a Table: included by client/rpc/{pool,table}.cc only. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/route_board.h"
#include "client/rpc/alias_event.h"
#include "client/rpc/heat_reporter.h"
#include "client/rpc/pool.h"
#include "client/rpc/pool_core.h"
#include "engram/mutex.h"

namespace engram::client {

struct Table::State {
  // A reader that ReadRows and friends take for the time of one call, and its memory.
  struct Desk {
    std::unique_ptr<RowReader> reader;
    std::vector<RowId> ids;
    std::vector<ReadStatus> status;
  };

  State(std::shared_ptr<PoolCore> pool, TableRecord table, TableName asked);
  ~State();

  absl::StatusOr<std::unique_ptr<Desk>> Take();
  void GiveBack(std::unique_ptr<Desk> desk);
  RowReader::Options ReaderOptions(RowReader::Options options);
  // What the two need for the row cache that is wanted, if one is (table_cache.cc).
  absl::StatusOr<std::shared_ptr<RowCache>> OpenPrivate(const PrefetcherOptions& wanted,
                                                        std::uint32_t unit_rows) const;
  absl::StatusOr<std::shared_ptr<RowCache>> OpenHost(const PrefetcherOptions& wanted,
                                                     std::uint32_t unit_rows) const;
  absl::Status OpenCache(const PrefetcherOptions& wanted, Prefetcher::Options* options,
                         RowReader::Options* reader_options) const;
  // What all readers of the table read since the last call.
  TakenHeat TakeHeat();
  // One request of at most the desk's size.
  absl::Status Read(Desk& desk, std::span<const ReadPart> parts, Instant deadline);
  absl::Status Explain(const WorstRow& worst, const ReadFailure& failure) const;
  absl::Status NoSuchRow(const WorstRow& worst) const;
  // As Table::Pending, by that map.
  std::optional<TableName> PendingIn(const ShardMap& map) const;

  const std::shared_ptr<PoolCore> core;
  const TableRecord record;
  const TableName asked;
  const std::shared_ptr<const ReadTable> read_table;
  TokenMap token_map;
  std::unique_ptr<Addressing> addressing;
  RouteBoard board;
  AliasEvent moved;

  Mutex mutex;
  std::vector<std::unique_ptr<Desk>> desks ABSL_GUARDED_BY(mutex);  // idle
  std::vector<std::shared_ptr<ReadCounters>> counters ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<ReadHeat>> heats ABSL_GUARDED_BY(mutex);
};

}  // namespace engram::client
