// What callers get wrong about steps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/abi/arguments.h"
#include "client/abi/layout.h"

namespace engram::client::abi {
namespace {

// One entry of step->layer_rows, and how its mistakes are told.
struct Entry {
  std::uint32_t at = 0;
  engram_layer_rows rows{};

  std::string what() const { return absl::StrCat("step->layer_rows[", at, "]"); }
  absl::Status Invalid(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(what(), why));
  }
};

// The bytes from the first to the last of `runs` runs of `columns` rows; false on overflow.
bool Extent(const engram_layer_rows& rows, std::uint32_t row_bytes, std::size_t* bytes) {
  std::size_t last_run, last_row;
  return !__builtin_mul_overflow(rows.runs - 1, rows.run_stride, &last_run) &&
         !__builtin_mul_overflow(std::size_t{rows.columns} - 1, rows.row_stride, &last_row) &&
         !__builtin_add_overflow(last_run, last_row, bytes) &&
         !__builtin_add_overflow(*bytes, row_bytes, bytes);
}

absl::Status TakeEntry(const engram_layer_rows* layer_rows, std::uint32_t at, Entry* entry) {
  entry->at = at;
  // The array's stride is the size that its first entry says.
  if (absl::Status status = CheckStructSize("step->layer_rows", layer_rows->struct_size);
      !status.ok())
    return status;
  const auto* given = reinterpret_cast<const engram_layer_rows*>(
      reinterpret_cast<const char*>(layer_rows) + at * layer_rows->struct_size);
  absl::Status status = TakeStruct("", given, false, &entry->rows);
  // Its name costs an allocation: only where it is told.
  return status.ok() ? status : TakeStruct(entry->what().c_str(), given, false, &entry->rows);
}

// Where the ids are and what they count from.
absl::Status TakeIds(const TableShape& shape, Entry& entry, ReadPart* part) {
  engram_layer_rows& rows = entry.rows;
  if (rows.ids == nullptr) return entry.Invalid(".ids is NULL");
  if (rows.runs > kMaxRows / rows.columns)
    return entry.Invalid(absl::StrCat(" has ", rows.runs, " runs of ", rows.columns,
                                      " rows; the limit is ", kMaxRows, " rows"));
  if (rows.column_id_stride == 0) rows.column_id_stride = 1;
  if (rows.column_id_stride > kMaxRows || rows.id_stride > kMaxRows)
    return entry.Invalid(absl::StrCat(".id_stride is ", rows.id_stride, ", .column_id_stride ",
                                      rows.column_id_stride, "; the limit is ", kMaxRows));
  if (rows.id_stride == 0) rows.id_stride = rows.columns * rows.column_id_stride;
  part->ids = rows.ids;
  part->id_kind =
      rows.id_type == ENGRAM_ID_INT32 ? ReadPart::IdKind::kInt32 : ReadPart::IdKind::kInt64;
  part->runs = static_cast<std::uint32_t>(rows.runs);
  part->run_rows = rows.columns;
  part->run_id_stride = rows.id_stride;
  part->id_stride = rows.column_id_stride;
  part->row_limit = shape.rows;
  if (rows.layer_index >= 0) {
    part->first_row = shape.layers[static_cast<std::size_t>(rows.layer_index)].first_row;
    part->row_limit = shape.layers[static_cast<std::size_t>(rows.layer_index)].rows;
  }
  return absl::OkStatus();
}

// Where the caller's own strides say.
absl::Status TakeOutput(const TableShape& shape, Entry& entry, ReadPart* part) {
  engram_layer_rows& rows = entry.rows;
  if (rows.out == nullptr) return entry.Invalid(".out is NULL");
  if (rows.row_stride == 0) rows.row_stride = shape.row_bytes;
  if (rows.row_stride < shape.row_bytes)
    return entry.Invalid(absl::StrCat(".row_stride is ", rows.row_stride, "; a row has ",
                                      shape.row_bytes, " bytes"));
  if (rows.run_stride == 0) rows.run_stride = rows.columns * rows.row_stride;
  if (rows.run_stride < shape.row_bytes && rows.runs > 1)
    return entry.Invalid(absl::StrCat(".run_stride is ", rows.run_stride, "; a row has ",
                                      shape.row_bytes, " bytes"));
  std::size_t extent = 0;
  if (!Extent(rows, shape.row_bytes, &extent) || extent > rows.out_bytes)
    return entry.Invalid(
        absl::StrCat(".out_bytes is ", rows.out_bytes, "; its rows need ", extent));
  part->out = static_cast<std::byte*>(rows.out);
  part->row_stride = rows.row_stride;
  part->run_stride = rows.run_stride;
  return absl::OkStatus();
}

// The ids are those of every column of the layer; the layout takes its columns of them.
absl::Status TakePlace(const TableShape& shape, const StepPlace& place, std::uint32_t at,
                       const Entry& entry, ReadPart* part) {
  const engram_layer_rows& rows = entry.rows;
  const StepLayout& layout = *place.layout;
  if (rows.out != nullptr || rows.out_bytes != 0 || rows.row_stride != 0 || rows.run_stride != 0)
    return entry.Invalid(
        " says where its rows land, and so does the step's layout: leave out, "
        "out_bytes, row_stride and run_stride 0");
  if (rows.columns != shape.columns_per_layer())
    return entry.Invalid(absl::StrCat(".columns is ", rows.columns, "; with a layout it is 0 or ",
                                      shape.columns_per_layer(),
                                      ", all columns of the layer: the layout takes its own"));
  if (rows.runs > layout.max_tokens)
    return entry.Invalid(absl::StrCat(".runs is ", rows.runs, "; the layout has places for ",
                                      layout.max_tokens, " tokens"));
  const std::uint32_t block =
      rows.layer_index >= 0 ? static_cast<std::uint32_t>(rows.layer_index) : at;
  if (block >= layout.layers)
    return entry.Invalid(absl::StrCat(" would land in block ", block, "; the layout has ",
                                      layout.layers, " layers"));
  const std::size_t id_bytes = part->id_kind == ReadPart::IdKind::kInt32 ? 4 : 8;
  part->ids =
      static_cast<const std::byte*>(part->ids) + layout.first_column * part->id_stride * id_bytes;
  part->id_stride *= layout.column_step;
  part->run_rows = layout.columns;
  PlacePart(place, block, part);
  return absl::OkStatus();
}

template <class Id>
bool FindBeyond(const ReadPart& part, std::uint64_t limit, std::size_t* run, std::size_t* column) {
  const auto* ids = static_cast<const Id*>(part.ids);
  Id largest = 0;
  for (std::size_t r = 0; r < part.runs; ++r) {
    for (std::size_t i = 0; i < part.run_rows; ++i)
      largest = std::max(largest, ids[r * part.run_id_stride + i * part.id_stride]);
  }
  if (static_cast<std::uint64_t>(largest) < limit) return false;
  for (*run = 0; *run < part.runs; ++*run) {
    for (*column = 0; *column < part.run_rows; ++*column) {
      if (ids[*run * part.run_id_stride + *column * part.id_stride] == largest) return true;
    }
  }
  return false;
}

absl::Status CheckIds(const TableShape& shape, const Entry& entry, const ReadPart& part) {
  std::size_t run = 0, column = 0;
  const bool narrow = part.id_kind == ReadPart::IdKind::kInt32;
  if (!(narrow ? FindBeyond<std::int32_t>(part, part.row_limit, &run, &column)
               : FindBeyond<std::int64_t>(part, part.row_limit, &run, &column)))
    return absl::OkStatus();
  const std::size_t at = run * part.run_id_stride + column * part.id_stride;
  const std::int64_t id = narrow ? static_cast<const std::int32_t*>(part.ids)[at]
                                 : static_cast<const std::int64_t*>(part.ids)[at];
  return entry.Invalid(
      absl::StrCat(" asks for row ", id, " (run ", run, ", column ", column, "); ",
                   entry.rows.layer_index < 0
                       ? "table "
                       : absl::StrCat("layer index ", entry.rows.layer_index, " of table "),
                   shape.name, " has rows 0 to ", part.row_limit - 1));
}

}  // namespace

Instant NeededBy(Instant now, std::uint64_t needed_in_ns) {
  if (needed_in_ns == 0) return Instant::max();
  return now + Duration(static_cast<std::int64_t>(std::min(needed_in_ns, kMaxTimeoutNs)));
}

void PlacePart(const StepPlace& place, std::uint32_t block, ReadPart* part) {
  const StepLayout& layout = *place.layout;
  std::byte* const out = place.out + block * layout.layer_stride;
  part->out = out + layout.plane[0].offset;
  part->row_stride = layout.plane[0].column_stride;
  part->run_stride = layout.plane[0].token_stride;
  part->split_bytes = layout.split_bytes();
  if (part->split_bytes == 0) return;
  part->rest = out + layout.plane[1].offset;
  part->rest_row_stride = layout.plane[1].column_stride;
  part->rest_run_stride = layout.plane[1].token_stride;
}

absl::StatusOr<Table::PrefetcherOptions> TakePrefetcherOptions(
    const engram_prefetcher_options* given, bool* check_memory) {
  engram_prefetcher_options ours{};
  if (absl::Status status = TakeStruct("options", given, true, &ours); !status.ok()) return status;
  for (const auto& [name, flag] :
       {std::pair("poller", ours.poller), std::pair("check_memory", ours.check_memory),
        std::pair("host_cache", ours.host_cache)}) {
    if (flag > 1)
      return absl::InvalidArgumentError(
          absl::StrCat("options->", name, " is ", flag, "; it is 0 or 1"));
  }
  Table::PrefetcherOptions options;
  if (ours.steps != 0) options.steps = ours.steps;
  if (ours.max_step_rows != 0) options.max_step_rows = ours.max_step_rows;
  options.poller = ours.poller == 1;
  options.cache_bytes = ours.cache_bytes;
  options.host_cache = ours.host_cache == 1;
  if (options.host_cache && options.cache_bytes == 0)
    return absl::InvalidArgumentError(
        "options->host_cache is 1, but cache_bytes is 0: give it some");
  if (ours.pinned_file != nullptr) {
    auto file = TakeName("options->pinned_file", ours.pinned_file);
    if (!file.ok()) return file.status();
    options.pinned_file = *std::move(file);
  }
  *check_memory = ours.check_memory == 1;
  return options;
}

absl::StatusOr<StepKind> TakeKind(std::uint32_t kind) {
  if (kind > ENGRAM_STEP_PREFILL)
    return absl::InvalidArgumentError(
        absl::StrCat("step->kind is ", kind, "; see engram_step_kind for the known ones"));
  return static_cast<StepKind>(kind);
}

absl::StatusOr<StepLayer> TakeLayer(const TableShape& shape, const engram_layer_rows* layer_rows,
                                    std::uint32_t at, Instant now, const StepPlace& place,
                                    bool fail_bad_ids) {
  Entry entry;
  if (absl::Status status = TakeEntry(layer_rows, at, &entry); !status.ok()) return status;
  engram_layer_rows& rows = entry.rows;
  if (rows.id_type > ENGRAM_ID_INT64)
    return entry.Invalid(
        absl::StrCat(".id_type is ", rows.id_type, "; known are 0 (int32) and 1 (int64)"));
  if (rows.layer_index < -1 || rows.layer_index >= static_cast<std::int64_t>(shape.layers.size()))
    return entry.Invalid(absl::StrCat(".layer_index is ", rows.layer_index, "; table ", shape.name,
                                      " has ", shape.layers.size(),
                                      " layers, -1 is the whole table"));
  StepLayer layer;
  layer.needed_by = NeededBy(now, rows.needed_in_ns);
  ReadPart& part = layer.rows;
  if (place.layout != nullptr && rows.columns == 0) rows.columns = shape.columns_per_layer();
  if (rows.runs == 0 || rows.columns == 0) {
    part.runs = 0;
    return layer;
  }
  absl::Status status = TakeIds(shape, entry, &part);
  if (status.ok())
    status = place.layout == nullptr ? TakeOutput(shape, entry, &part)
                                     : TakePlace(shape, place, at, entry, &part);
  if (status.ok() && !fail_bad_ids) status = CheckIds(shape, entry, part);
  if (!status.ok()) return status;
  return layer;
}

absl::Status CheckPlace(const StepPlace& place, std::size_t out_bytes) {
  if (place.out == nullptr) return absl::InvalidArgumentError("out is NULL");
  if (out_bytes >= place.layout->bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("out_bytes is ", out_bytes, "; ", place.layout->max_tokens, " tokens of ",
                   place.layout->columns, " columns in ", place.layout->layers, " layers need ",
                   place.layout->bytes, ": see engram_table_get_layout"));
}

}  // namespace engram::client::abi
