// The C ABI of pools and tables: opening and closing, what a table says of itself, its statistics,
// and memory that is registered with it.
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_join.h"
#include "client/abi/handles.h"
#include "client/abi/layout.h"

using engram::client::Pool;
using engram::client::Table;
namespace args = engram::client::abi;

namespace {

args::TableShape ShapeOf(const Table& table) {
  const engram::TableSpec& spec = table.spec();
  args::TableShape shape;
  shape.name = table.record().name.Full();
  shape.rows = spec.Rows();
  shape.row_bytes = spec.RowBytes();
  shape.columns = static_cast<std::uint32_t>(spec.columns.size());
  for (std::uint32_t layer : spec.addressing.layers)
    shape.layers.push_back({spec.LayerFirstRow(layer), spec.LayerRows(layer)});
  for (const engram::Plane& plane : spec.planes) shape.planes.push_back(plane.bytes);
  return shape;
}

absl::StatusOr<std::unique_ptr<engram_pool>> OpenPool(const engram_pool_options* options,
                                                      const engram_tls_files* tls) {
  auto taken = args::TakePoolOptions(options, std::getenv("ENGRAM_ENDPOINT"), args::ContextFile());
  if (!taken.ok()) return taken.status();
  taken->log = args::Log;
  engram::client::TakeFabricEnvironment(&*taken);
  if (absl::Status status = args::TakeTlsFiles(tls, &*taken); !status.ok()) return status;
  engram::client::TakeTlsEnvironment(&*taken);
  if (absl::Status status = args::CheckForks(); !status.ok()) return status;
  auto opened = Pool::Open(*taken);
  if (!opened.ok()) return opened.status();
  auto handle = std::make_unique<engram_pool>();
  handle->pool = *std::move(opened);
  handle->endpoints = absl::StrJoin(taken->endpoints, ",");
  return handle;
}

absl::StatusOr<std::unique_ptr<engram_table>> OpenTable(
    engram_pool* pool, const std::string& name, const engram::client::OpenTableOptions& options) {
  auto opened = pool->pool->OpenTable(name, options);
  if (!opened.ok()) return opened.status();
  auto handle = std::make_unique<engram_table>();
  handle->pool = pool;
  handle->table = *std::move(opened);
  handle->shape = ShapeOf(*handle->table);
  handle->uid = handle->table->record().uid.Hex();
  for (const engram::Plane& plane : handle->table->spec().planes)
    handle->dtypes.emplace_back(engram::Name(plane.dtype));
  handle->counted.Begin();
  return handle;
}

absl::StatusOr<std::unique_ptr<engram_table>> OpenTable(engram_pool* pool, const char* name,
                                                        const engram_table_options* options) {
  if (absl::Status status = args::Check(pool); !status.ok()) return status;
  auto full = args::TakeName("name", name);
  if (!full.ok()) return full.status();
  auto taken = args::TakeTableOptions(options);
  if (!taken.ok()) return taken.status();
  return OpenTable(pool, *full, *taken);
}

absl::Status Pending(const engram_table& table, char* name, std::size_t bytes) {
  if (name == nullptr) return absl::InvalidArgumentError("name is NULL");
  const auto pending = table.table->Pending();
  const std::string full = pending ? pending->Full() : "";
  if (bytes <= full.size())
    return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes, "; \"", full, "\" needs ",
                                                   full.size() + 1, ": give ENGRAM_NAME_BYTES"));
  std::memcpy(name, full.c_str(), full.size() + 1);
  return absl::OkStatus();
}

absl::Status PendingFd(const engram_table& table, int* fd) {
  if (fd == nullptr) return absl::InvalidArgumentError("fd is NULL");
  *fd = -1;
  auto descriptor = table.table->PendingDescriptor();
  if (!descriptor.ok()) return descriptor.status();
  *fd = *descriptor;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<engram_table>> Adopt(engram_table* table,
                                                    const engram_table_options* options) {
  if (absl::Status status = args::Check(table); !status.ok()) return status;
  auto taken = args::TakeTableOptions(options);
  if (!taken.ok()) return taken.status();
  const std::string asked = table->table->asked().Full();
  if (!table->table->Pending())
    return absl::FailedPreconditionError(absl::StrCat("there is nothing to adopt: table ",
                                                      table->shape.name, " was opened as ", asked,
                                                      ", and that names no other version now"));
  if (taken->expected_spec_digest.empty())
    taken->expected_spec_digest = table->table->record().spec_digest;
  return OpenTable(table->pool, asked, *taken);
}

absl::Status IndexError(const char* what, std::uint32_t index, std::size_t count) {
  return absl::NotFoundError(
      absl::StrCat("there is no ", what, " ", index, "; the table has ", count));
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
  stats.leases_expired = totals.leases_expired;
  stats.peers_abandoned = totals.abandoned;
  stats.cache_hits = totals.cache_hits;
  stats.cache_misses = totals.cache_misses;
  stats.cache_evictions = totals.cache_evictions;
  stats.cache_bytes = totals.cache_bytes;
  stats.rows_hinted = totals.rows_hinted;
  const engram::client::TenantRate rate = table.table->RateOfTenant();
  stats.tenant_budget_rows_per_second = rate.budget_rows_per_second;
  stats.tenant_rows_per_second = rate.rows_per_second;
  return stats;
}

absl::Status GetLayer(const engram_table& table, std::uint32_t index, engram_layer_info* info) {
  const auto& layers = table.shape.layers;
  if (index >= layers.size()) return IndexError("layer", index, layers.size());
  engram_layer_info ours{};
  ours.layer = table.table->spec().addressing.layers[index];
  ours.first_row = layers[index].first_row;
  ours.rows = layers[index].rows;
  return args::GiveStruct("info", ours, info);
}

absl::Status GetLayout(const engram_table& table, const engram_layout* layout, std::uint32_t plane,
                       engram_layout_info* info) {
  const auto taken = args::TakeLayout(table.shape, layout);
  if (!taken.ok()) return taken.status();
  if (plane >= taken->planes)
    return absl::NotFoundError(
        absl::StrCat("there is no plane ", plane, "; the layout has ", taken->planes));
  engram_layout_info ours{};
  ours.bytes = taken->bytes;
  ours.layer_stride = taken->layer_stride;
  ours.offset = taken->plane[plane].offset;
  ours.token_stride = taken->plane[plane].token_stride;
  ours.column_stride = taken->plane[plane].column_stride;
  ours.plane_bytes = taken->plane[plane].bytes;
  ours.planes = taken->planes;
  ours.layers = taken->layers;
  ours.columns = taken->columns;
  return args::GiveStruct("info", ours, info);
}

absl::Status RegisterDestination(engram_table& table, void* memory, std::size_t bytes,
                                 engram_destination* destination) {
  if (destination == nullptr) return absl::InvalidArgumentError("destination is NULL");
  *destination = 0;
  if (absl::Status status = args::Destinations::Check(memory, bytes); !status.ok()) return status;
  auto made = table.table->RegisterDestination({static_cast<std::byte*>(memory), bytes});
  if (!made.ok()) return made.status();
  auto number = table.destinations.Add(*std::move(made));
  if (!number.ok()) return number.status();
  *destination = *number;
  return absl::OkStatus();
}

}  // namespace

extern "C" {

void engram_pool_options_init(engram_pool_options* options) { args::Init(options); }

engram_status engram_pool_open(const engram_pool_options* options, engram_pool** pool) {
  return args::Open(pool, [&] { return OpenPool(options, nullptr); });
}

engram_status engram_pool_open_tls(const engram_pool_options* options, const engram_tls_files* tls,
                                   engram_pool** pool) {
  return args::Open(pool, [&] { return OpenPool(options, tls); });
}

void engram_pool_close(engram_pool* pool) { args::Close(pool); }

void engram_table_options_init(engram_table_options* options) { args::Init(options); }

engram_status engram_table_open(engram_pool* pool, const char* name,
                                const engram_table_options* options, engram_table** table) {
  return args::Open(table, [&] { return OpenTable(pool, name, options); });
}

void engram_table_close(engram_table* table) { args::Close(table); }

engram_status engram_table_pending(const engram_table* table, char* name, size_t bytes) {
  return args::Call(table, [&] { return Pending(*table, name, bytes); });
}

engram_status engram_table_pending_fd(const engram_table* table, int* fd) {
  return args::Call(table, [&] { return PendingFd(*table, fd); });
}

engram_status engram_table_adopt(engram_table* table, const engram_table_options* options,
                                 engram_table** adopted) {
  return args::Open(adopted, [&] { return Adopt(table, options); });
}

engram_status engram_table_get_info(const engram_table* table, engram_table_info* info) {
  return args::Call(table, [&] { return args::GiveStruct("info", InfoOf(*table), info); });
}

engram_status engram_table_get_layer(const engram_table* table, uint32_t index,
                                     engram_layer_info* info) {
  return args::Call(table, [&] { return GetLayer(*table, index, info); });
}

engram_status engram_table_get_column(const engram_table* table, uint32_t index,
                                      engram_column_info* info) {
  return args::Call(table, [&] { return GetColumn(*table, index, info); });
}

engram_status engram_table_get_plane(const engram_table* table, uint32_t index,
                                     engram_plane_info* info) {
  return args::Call(table, [&] { return GetPlane(*table, index, info); });
}

engram_status engram_table_get_stats(const engram_table* table, engram_stats* stats) {
  return args::Call(table, [&] { return args::GiveStruct("stats", StatsOf(*table), stats); });
}

engram_status engram_table_get_layout(const engram_table* table, const engram_layout* layout,
                                      uint32_t plane, engram_layout_info* info) {
  return args::Call(table, [&] { return GetLayout(*table, layout, plane, info); });
}

engram_status engram_table_register_destination(engram_table* table, void* memory, size_t bytes,
                                                engram_destination* destination) {
  return args::Call(table, [&] { return RegisterDestination(*table, memory, bytes, destination); });
}

engram_status engram_table_unregister_destination(engram_table* table,
                                                  engram_destination destination) {
  return args::Call(table, [&] { return table->destinations.Remove(destination); });
}

}  // extern "C"
