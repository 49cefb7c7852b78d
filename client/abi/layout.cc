#include "client/abi/layout.h"

#include "absl/strings/str_cat.h"

namespace engram::client::abi {
namespace {

std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// The columns of a layer that are read.
absl::Status TakeColumns(const TableShape& shape, const engram_layout& given, StepLayout* out) {
  const std::uint32_t have = shape.columns_per_layer();
  out->first_column = given.first_column;
  out->column_step = given.column_step == 0 ? 1 : given.column_step;
  if (given.first_column >= have)
    return absl::InvalidArgumentError(absl::StrCat("layout->first_column is ", given.first_column,
                                                   "; table ", shape.name, " has columns 0 to ",
                                                   have - 1, " in each layer"));
  const std::uint32_t most = (have - given.first_column - 1) / out->column_step + 1;
  if (given.columns > most)
    return absl::InvalidArgumentError(absl::StrCat(
        "layout->columns is ", given.columns, "; from column ", given.first_column, " in steps of ",
        out->column_step, " table ", shape.name, " has ", most, " of ", have, " columns"));
  out->columns = given.columns == 0 ? most : given.columns;
  return absl::OkStatus();
}

absl::Status TakePlanes(const TableShape& shape, const engram_layout& given, StepLayout* out) {
  if (given.split_planes > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("layout->split_planes is ", given.split_planes, "; it is 0 or 1"));
  if (given.split_planes == 1 && shape.planes.size() != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("layout->split_planes is 1, but the rows of table ", shape.name, " have ",
                     shape.planes.size(), " planes, not 2: take them packed (0)"));
  out->planes = given.split_planes == 1 ? 2 : 1;
  for (std::uint32_t i = 0; i < out->planes; ++i)
    out->plane[i].bytes = out->planes == 1 ? shape.row_bytes : shape.planes[i];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepLayout> TakeLayout(const TableShape& shape, const engram_layout* layout) {
  engram_layout given{};
  if (absl::Status status = TakeStruct("layout", layout, false, &given); !status.ok())
    return status;
  if (shape.layers.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("table ", shape.name, " has no layers: read it by row ids"));
  if (given.order > ENGRAM_COLUMN_TOKEN_ROW)
    return absl::InvalidArgumentError(absl::StrCat("layout->order is ", given.order,
                                                   "; see engram_row_order for the known ones"));
  StepLayout out;
  out.layers = static_cast<std::uint32_t>(shape.layers.size());
  out.max_tokens = given.max_tokens;
  if (absl::Status status = TakeColumns(shape, given, &out); !status.ok()) return status;
  const std::size_t most = kMaxRows / out.columns / out.layers;
  if (given.max_tokens == 0 || given.max_tokens > most)
    return absl::InvalidArgumentError(
        absl::StrCat("layout->max_tokens is ", given.max_tokens, "; allowed are 1 to ", most));
  if (absl::Status status = TakePlanes(shape, given, &out); !status.ok()) return status;
  for (std::uint32_t i = 0; i < out.planes; ++i) {
    StepLayout::PlanePlace& plane = out.plane[i];
    const bool by_column = given.order == ENGRAM_COLUMN_TOKEN_ROW;
    plane.offset = out.layer_stride;
    plane.token_stride = std::size_t{plane.bytes} * (by_column ? 1 : out.columns);
    plane.column_stride = std::size_t{plane.bytes} * (by_column ? out.max_tokens : 1);
    out.layer_stride += AlignUp(std::size_t{plane.bytes} * out.columns * out.max_tokens);
  }
  out.bytes = out.layer_stride * out.layers;
  return out;
}

StepLayout PackedLayout(const TableShape& shape, std::size_t tokens) {
  StepLayout out;
  out.max_tokens = tokens;
  out.layers = static_cast<std::uint32_t>(shape.layers.size());
  out.columns = shape.columns_per_layer();
  out.layer_stride = std::size_t{out.columns} * shape.row_bytes;
  out.plane[0].bytes = shape.row_bytes;
  out.plane[0].column_stride = shape.row_bytes;
  out.plane[0].token_stride = std::size_t{shape.columns} * shape.row_bytes;
  out.bytes = tokens * out.plane[0].token_stride;
  return out;
}

}  // namespace engram::client::abi
