// What callers get wrong about steps.
#include "absl/strings/str_cat.h"
#include "client/abi/arguments.h"

namespace engram::client::abi {
namespace {

// The bytes from the first to the last of `runs` runs of `columns` rows; false on overflow.
bool Extent(const engram_layer_rows& rows, std::uint32_t row_bytes, std::size_t* bytes) {
  std::size_t last_run, last_row;
  return !__builtin_mul_overflow(rows.runs - 1, rows.run_stride, &last_run) &&
         !__builtin_mul_overflow(std::size_t{rows.columns} - 1, rows.row_stride, &last_row) &&
         !__builtin_add_overflow(last_run, last_row, bytes) &&
         !__builtin_add_overflow(*bytes, row_bytes, bytes);
}

}  // namespace

absl::StatusOr<Table::PrefetcherOptions> TakePrefetcherOptions(
    const engram_prefetcher_options* given) {
  engram_prefetcher_options ours{};
  if (absl::Status status = TakeStruct("options", given, true, &ours); !status.ok()) return status;
  if (ours.poller > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("options->poller is ", ours.poller, "; it is 0 or 1"));
  Table::PrefetcherOptions options;
  if (ours.steps != 0) options.steps = ours.steps;
  if (ours.max_step_rows != 0) options.max_step_rows = ours.max_step_rows;
  options.poller = ours.poller == 1;
  return options;
}

absl::StatusOr<StepKind> TakeKind(std::uint32_t kind) {
  if (kind > ENGRAM_STEP_PREFILL)
    return absl::InvalidArgumentError(
        absl::StrCat("step->kind is ", kind, "; see engram_step_kind for the known ones"));
  return static_cast<StepKind>(kind);
}

absl::StatusOr<StepLayer> TakeLayer(const TableShape& shape, const engram_layer_rows* layer_rows,
                                    std::uint32_t at, Instant now) {
  const std::string what = absl::StrCat("step->layer_rows[", at, "]");
  const auto invalid = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(what, why));
  };
  // The array's stride is the size that its first entry says.
  if (absl::Status status = CheckStructSize("step->layer_rows", layer_rows->struct_size);
      !status.ok())
    return status;
  const auto* first = reinterpret_cast<const char*>(layer_rows);
  const auto* entry =
      reinterpret_cast<const engram_layer_rows*>(first + at * layer_rows->struct_size);
  engram_layer_rows ours{};
  if (absl::Status status = TakeStruct(what.c_str(), entry, false, &ours); !status.ok())
    return status;
  if (ours.id_type > ENGRAM_ID_INT64) return invalid(absl::StrCat(".id_type is ", ours.id_type));
  if (ours.layer_index < -1 || ours.layer_index >= static_cast<std::int64_t>(shape.layers.size()))
    return invalid(absl::StrCat(".layer_index is ", ours.layer_index, "; the table has ",
                                shape.layers.size(), " layers"));
  StepLayer layer;
  if (ours.needed_in_ns != 0)
    layer.needed_by =
        now + Duration(static_cast<std::int64_t>(std::min(ours.needed_in_ns, kMaxTimeoutNs)));
  ReadPart& part = layer.rows;
  if (ours.runs == 0 || ours.columns == 0) {
    part.runs = 0;
    return layer;
  }
  if (ours.ids == nullptr) return invalid(".ids is NULL");
  if (ours.out == nullptr) return invalid(".out is NULL");
  if (ours.runs > kMaxRows / ours.columns)
    return invalid(absl::StrCat(" has ", ours.runs, " runs of ", ours.columns,
                                " rows; the limit is ", kMaxRows, " rows"));
  if (ours.id_stride == 0) ours.id_stride = ours.columns;
  if (ours.row_stride == 0) ours.row_stride = shape.row_bytes;
  if (ours.row_stride < shape.row_bytes)
    return invalid(absl::StrCat(".row_stride is ", ours.row_stride, "; a row has ", shape.row_bytes,
                                " bytes"));
  if (ours.run_stride == 0) ours.run_stride = ours.columns * ours.row_stride;
  std::size_t extent = 0;
  if (!Extent(ours, shape.row_bytes, &extent) || extent > ours.out_bytes)
    return invalid(absl::StrCat(".out_bytes is ", ours.out_bytes, "; its rows need ", extent));
  part.ids = ours.ids;
  part.id_kind =
      ours.id_type == ENGRAM_ID_INT32 ? ReadPart::IdKind::kInt32 : ReadPart::IdKind::kInt64;
  part.runs = static_cast<std::uint32_t>(ours.runs);
  part.run_rows = ours.columns;
  part.run_id_stride = ours.id_stride;
  part.row_limit = shape.rows;
  if (ours.layer_index >= 0) {
    part.first_row = shape.layers[static_cast<std::size_t>(ours.layer_index)].first_row;
    part.row_limit = shape.layers[static_cast<std::size_t>(ours.layer_index)].rows;
  }
  part.out = static_cast<std::byte*>(ours.out);
  part.row_stride = ours.row_stride;
  part.run_stride = ours.run_stride;
  return layer;
}

}  // namespace engram::client::abi
