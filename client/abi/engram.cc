// The C ABI (client/include/engram/engram.h) over Pool and Table. Every function: clear the last
// error, check the arguments (client/abi/arguments.h), call, turn the status. Nothing throws.
#include <grpc/grpc.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/abi/arguments.h"
#include "client/abi/handles.h"
#include "client/rpc/pool.h"
#include "engram/mutex.h"

using engram::client::Pool;
using engram::client::ReadPart;
using engram::client::Table;
namespace args = engram::client::abi;

namespace {

thread_local std::string last_error;

// Counts forks on the child's side: handles of the parent are of an older generation.
std::atomic<std::uint64_t> generation{0};
// A child that is forked while gRPC runs has gRPC's state without gRPC's threads: a call of its own
// would wait for ever. gRPC runs from the first pool that opens to some time after the last closed.
thread_local bool runs_at_fork = false;
std::atomic<bool> forked_in_use{false};

void WatchForks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { runs_at_fork = grpc_is_initialized() != 0; }, nullptr,
                   [] {
                     generation.fetch_add(1);
                     if (runs_at_fork) forked_in_use.store(true);
                   });
  });
}

struct LogSink {
  engram::Mutex mutex;
  engram_log_fn log ABSL_GUARDED_BY(mutex) = nullptr;
  void* user ABSL_GUARDED_BY(mutex) = nullptr;
};
LogSink& Sink() {
  static auto* const sink = new LogSink();  // never destroyed: threads may outlive main's statics
  return *sink;
}
// The lock is held over the call, which may not come back here: when engram_set_log returns, nobody
// uses what was set before.
void Log(int level, const std::string& message) {
  LogSink& sink = Sink();
  engram::MutexLock lock(&sink.mutex);
  if (sink.log != nullptr) sink.log(level, message.c_str(), sink.user);
}

}  // namespace

namespace engram::client::abi {

void ClearError() { last_error.clear(); }

engram_status Finish(const absl::Status& status) {
  if (!status.ok()) last_error = std::string(status.message());
  return StatusOf(status);
}

const char kHowToFork[] =
    "open pools after the last fork, or start the process anew (spawn) instead of forking it";

absl::Status CheckHandle(const char* what, const void* handle, std::uint64_t made) {
  if (handle == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  if (made != generation.load(std::memory_order_relaxed))
    return absl::FailedPreconditionError(
        absl::StrCat(what, " belongs to the parent of this forked process: ", kHowToFork));
  return absl::OkStatus();
}
absl::Status Check(const engram_pool* pool) {
  return CheckHandle("pool", pool, pool == nullptr ? 0 : pool->generation);
}
absl::Status Check(const engram_table* table) {
  return CheckHandle("table", table, table == nullptr ? 0 : table->generation);
}

std::uint64_t Generation() { return generation.load(std::memory_order_relaxed); }

engram::Instant DeadlineOf(std::uint64_t timeout_ns) {
  if (timeout_ns == 0) timeout_ns = 1'000'000'000;
  return SystemClock::Get().Now() +
         Duration(static_cast<std::int64_t>(std::min(timeout_ns, kMaxTimeoutNs)));
}

}  // namespace engram::client::abi

using args::Check;
using args::DeadlineOf;
using args::Guard;
using args::kHowToFork;

namespace {

// Memory of reads that the caller gave no place for; grows to what a thread needs and stays.
thread_local std::vector<engram::ReadStatus> status_scratch;
thread_local std::vector<engram::RowId> id_scratch;

args::TableShape ShapeOf(const Table& table) {
  const engram::TableSpec& spec = table.spec();
  args::TableShape shape;
  shape.name = table.record().name.Full();
  shape.rows = spec.Rows();
  shape.row_bytes = spec.RowBytes();
  shape.columns = static_cast<std::uint32_t>(spec.columns.size());
  for (std::uint32_t layer : spec.addressing.layers)
    shape.layers.push_back({spec.LayerFirstRow(layer), spec.LayerRows(layer)});
  return shape;
}

absl::Status IndexError(const char* what, std::uint32_t index, std::size_t count) {
  return absl::NotFoundError(
      absl::StrCat("there is no ", what, " ", index, "; the table has ", count));
}

absl::Status ReadRows(engram_table* table, const engram_rows* rows, void* out,
                      std::size_t out_bytes, std::uint8_t* row_status, std::uint64_t timeout_ns) {
  if (absl::Status status = Check(table); !status.ok()) return status;
  const engram::Instant deadline = DeadlineOf(timeout_ns);
  auto part = args::TakeRows(table->shape, rows, out, out_bytes, row_status);
  if (!part.ok()) return part.status();
  if (row_status == nullptr) {
    if (status_scratch.size() < part->run_rows) status_scratch.resize(part->run_rows);
    part->row_status = status_scratch.data();
  }
  const absl::Status status = table->table->ReadParts({&*part, 1}, deadline);
  if (row_status != nullptr) args::GiveRowStatus(*part, row_status);
  return status;
}

absl::Status AddressesOf(const engram_table* table, const engram::TokenSpan& tokens,
                         std::size_t rows) {
  const engram::Addressing* addressing = table->table->addressing();
  if (addressing == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", table->shape.name, " names no address function: read it by row ids"));
  if (id_scratch.size() < rows) id_scratch.resize(rows);
  return addressing->Rows(tokens, std::span(id_scratch).first(rows));
}

absl::Status Addresses(const engram_table* table, const engram_tokens* tokens, std::int64_t* rows,
                       std::size_t capacity) {
  if (absl::Status status = Check(table); !status.ok()) return status;
  const args::TableShape& shape = table->shape;
  auto taken = args::TakeTokens(shape, tokens, rows, capacity, 1);
  if (!taken.ok()) return taken.status();
  if (absl::Status status = AddressesOf(table, taken->span, taken->rows); !status.ok())
    return status;
  const std::size_t per_layer = shape.columns / shape.layers.size();
  for (std::size_t i = 0; i < taken->rows; ++i) {
    const std::uint64_t first = shape.layers[i % shape.columns / per_layer].first_row;
    rows[i] = static_cast<std::int64_t>(id_scratch[i].value() - first);
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(engram_table* table, const engram_tokens* tokens, void* out,
                        std::size_t out_bytes, std::uint8_t* row_status, std::uint64_t timeout_ns) {
  if (absl::Status status = Check(table); !status.ok()) return status;
  const engram::Instant deadline = DeadlineOf(timeout_ns);
  const args::TableShape& shape = table->shape;
  auto taken = args::TakeTokens(shape, tokens, out, out_bytes, shape.row_bytes);
  if (!taken.ok()) return taken.status();
  if (absl::Status status = AddressesOf(table, taken->span, taken->rows); !status.ok())
    return status;
  ReadPart part;
  part.ids = id_scratch.data();
  part.run_rows = static_cast<std::uint32_t>(taken->rows);
  part.row_limit = shape.rows;
  part.out = static_cast<std::byte*>(out);
  part.row_stride = shape.row_bytes;
  if (row_status == nullptr && status_scratch.size() < taken->rows)
    status_scratch.resize(taken->rows);
  part.row_status = row_status == nullptr ? status_scratch.data()
                                          : reinterpret_cast<engram::ReadStatus*>(row_status);
  const absl::Status status = table->table->ReadParts({&part, 1}, deadline);
  if (row_status != nullptr) args::GiveRowStatus(part, row_status);
  return status;
}

engram_table_info InfoOf(const engram_table& table) {
  const engram::TableRecord& record = table.table->record();
  const engram::Addressing* addressing = table.table->addressing();
  engram_table_info info{};
  info.name = record.name.name.c_str();
  info.version = record.name.version.c_str();
  info.table_uid = table.uid.c_str();
  info.spec_digest = record.spec_digest.c_str();
  info.content_digest = record.content_digest.c_str();
  info.rows = table.shape.rows;
  info.layers = static_cast<std::uint32_t>(table.shape.layers.size());
  info.columns_per_layer = record.spec.ColumnsPerLayer();
  info.row_bytes = table.shape.row_bytes;
  info.planes = static_cast<std::uint32_t>(record.spec.planes.size());
  info.lookback = addressing == nullptr ? 0 : addressing->lookback();
  return info;
}

absl::Status GetColumn(const engram_table& table, std::uint32_t index, engram_column_info* info) {
  const engram::TableSpec& spec = table.table->spec();
  if (index >= spec.columns.size()) return IndexError("column", index, spec.columns.size());
  engram_column_info ours{};
  const engram::Column& column = spec.columns[index];
  ours.layer = column.layer;
  ours.order = column.order;
  ours.head = column.head;
  ours.rows = column.rows;
  for (std::uint32_t i = 0; i < index; ++i) {
    if (spec.columns[i].layer == column.layer) ours.first_row += spec.columns[i].rows;
  }
  return args::GiveStruct("info", ours, info);
}

absl::Status GetPlane(const engram_table& table, std::uint32_t index, engram_plane_info* info) {
  const engram::TableSpec& spec = table.table->spec();
  if (index >= spec.planes.size()) return IndexError("plane", index, spec.planes.size());
  engram_plane_info ours{};
  ours.name = spec.planes[index].name.c_str();
  ours.dtype = table.dtypes[index].c_str();
  ours.bytes = spec.planes[index].bytes;
  for (std::uint32_t i = 0; i < index; ++i) ours.offset += spec.planes[i].bytes;
  return args::GiveStruct("info", ours, info);
}

engram_stats StatsOf(const engram_table& table) {
  const engram::client::ReadTotals totals = table.table->Totals();
  const auto over = [&](engram::FabricKind kind) {
    return totals
        .rows[static_cast<std::size_t>(kind)][static_cast<std::size_t>(engram::ReadStatus::kOk)];
  };
  engram_stats stats{};
  stats.rows_ok = totals.rows_delivered;
  stats.rows_failed = totals.rows_failed;
  stats.rows_skipped = totals.rows_skipped;
  stats.rows_duplicate = totals.duplicates;
  stats.rows_retried = totals.retries;
  stats.seal_failures = totals.seal_failures;
  stats.bytes_read = totals.bytes_received;
  stats.batches = totals.requests;
  stats.rows_mapped = over(engram::FabricKind::kMapped);
  stats.rows_stream = over(engram::FabricKind::kStream);
  stats.rows_ofi = over(engram::FabricKind::kOfi);
  stats.layers_ready = totals.layers_ready;
  stats.layers_failed = totals.layers_failed;
  stats.layers_cancelled = totals.layers_cancelled;
  stats.layers_late = totals.layers_late;
  stats.rows_late = totals.rows_late;
  stats.hedges_started = totals.hedges_started;
  stats.hedges_won = totals.hedges_won;
  stats.rows_joined = totals.rows_joined;
  return stats;
}

}  // namespace

extern "C" {

const char* engram_version(void) { return ENGRAM_VERSION; }

const char* engram_status_name(engram_status status) {
  static constexpr const char* kNames[] = {"ok",
                                           "invalid_argument",
                                           "not_found",
                                           "failed_precondition",
                                           "unavailable",
                                           "deadline_exceeded",
                                           "data_loss",
                                           "resource_exhausted",
                                           "permission_denied",
                                           "internal"};
  // From C the parameter may hold any number: it is not read as an enumerator before that is known.
  unsigned index;
  static_assert(sizeof index == sizeof status);
  std::memcpy(&index, &status, sizeof index);
  return index < sizeof kNames / sizeof kNames[0] ? kNames[index] : "unknown";
}

const char* engram_last_error(void) { return last_error.c_str(); }

void engram_set_log(engram_log_fn log, void* user) {
  LogSink& sink = Sink();
  engram::MutexLock lock(&sink.mutex);
  sink.log = log;
  sink.user = user;
}

void engram_pool_options_init(engram_pool_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

engram_status engram_pool_open(const engram_pool_options* options, engram_pool** pool) {
  return Guard([&]() -> absl::Status {
    if (pool == nullptr) return absl::InvalidArgumentError("pool is NULL");
    *pool = nullptr;
    auto taken =
        args::TakePoolOptions(options, std::getenv("ENGRAM_ENDPOINT"), args::ContextFile());
    if (!taken.ok()) return taken.status();
    taken->log = Log;
    if (const char* provider = std::getenv("ENGRAM_OFI_PROVIDER")) taken->ofi_provider = provider;
    if (const char* host = std::getenv("ENGRAM_OFI_HOST")) taken->ofi_bind = host;
    WatchForks();
    if (forked_in_use.load())
      return absl::FailedPreconditionError(
          absl::StrCat("this process was forked while its parent had a pool in use: ", kHowToFork));
    auto opened = Pool::Open(*taken);
    if (!opened.ok()) return opened.status();
    auto handle = std::make_unique<engram_pool>();
    handle->pool = *std::move(opened);
    handle->generation = generation.load();
    *pool = handle.release();
    return absl::OkStatus();
  });
}

void engram_pool_close(engram_pool* pool) {
  // A forked child has none of the threads that closing would wait for.
  if (pool == nullptr || !Check(pool).ok()) return;
  Guard([&]() -> absl::Status {
    delete pool;
    return absl::OkStatus();
  });
}

void engram_table_options_init(engram_table_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

engram_status engram_table_open(engram_pool* pool, const char* name,
                                const engram_table_options* options, engram_table** table) {
  return Guard([&]() -> absl::Status {
    if (table == nullptr) return absl::InvalidArgumentError("table is NULL");
    *table = nullptr;
    if (absl::Status status = Check(pool); !status.ok()) return status;
    auto full = args::TakeName("name", name);
    if (!full.ok()) return full.status();
    auto taken = args::TakeTableOptions(options);
    if (!taken.ok()) return taken.status();
    auto opened = pool->pool->OpenTable(*full, *taken);
    if (!opened.ok()) return opened.status();
    auto handle = std::make_unique<engram_table>();
    handle->table = *std::move(opened);
    handle->generation = generation.load();
    handle->shape = ShapeOf(*handle->table);
    handle->uid = handle->table->record().uid.Hex();
    for (const engram::Plane& plane : handle->table->spec().planes)
      handle->dtypes.emplace_back(engram::Name(plane.dtype));
    *table = handle.release();
    return absl::OkStatus();
  });
}

void engram_table_close(engram_table* table) {
  if (table == nullptr || !Check(table).ok()) return;
  Guard([&]() -> absl::Status {
    delete table;
    return absl::OkStatus();
  });
}

engram_status engram_table_get_info(const engram_table* table, engram_table_info* info) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(table); !status.ok()) return status;
    return args::GiveStruct("info", InfoOf(*table), info);
  });
}

engram_status engram_table_get_layer(const engram_table* table, uint32_t index,
                                     engram_layer_info* info) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(table); !status.ok()) return status;
    const auto& layers = table->shape.layers;
    if (index >= layers.size()) return IndexError("layer", index, layers.size());
    engram_layer_info ours{};
    ours.layer = table->table->spec().addressing.layers[index];
    ours.first_row = layers[index].first_row;
    ours.rows = layers[index].rows;
    return args::GiveStruct("info", ours, info);
  });
}

engram_status engram_table_get_column(const engram_table* table, uint32_t index,
                                      engram_column_info* info) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(table); !status.ok()) return status;
    return GetColumn(*table, index, info);
  });
}

engram_status engram_table_get_plane(const engram_table* table, uint32_t index,
                                     engram_plane_info* info) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(table); !status.ok()) return status;
    return GetPlane(*table, index, info);
  });
}

engram_status engram_table_addresses(const engram_table* table, const engram_tokens* tokens,
                                     int64_t* rows, size_t capacity) {
  return Guard([&] { return Addresses(table, tokens, rows, capacity); });
}

engram_status engram_table_read_rows(engram_table* table, const engram_rows* rows, void* out,
                                     size_t out_bytes, uint8_t* row_status, uint64_t timeout_ns) {
  return Guard([&] { return ReadRows(table, rows, out, out_bytes, row_status, timeout_ns); });
}

engram_status engram_table_read_tokens(engram_table* table, const engram_tokens* tokens, void* out,
                                       size_t out_bytes, uint8_t* row_status, uint64_t timeout_ns) {
  return Guard([&] { return ReadTokens(table, tokens, out, out_bytes, row_status, timeout_ns); });
}

engram_status engram_table_get_stats(const engram_table* table, engram_stats* stats) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(table); !status.ok()) return status;
    return args::GiveStruct("stats", StatsOf(*table), stats);
  });
}

}  // extern "C"
