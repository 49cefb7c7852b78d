// Where the rows of a step land, computed once from the table's shape and the caller's
// engram_layout (engram.h): plain offsets and strides from here on. Pure functions: Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "client/abi/arguments.h"

namespace engram::client::abi {

// Blocks and planes start on multiples of this, for vector loads.
inline constexpr std::size_t kBlockAlignment = 64;

struct StepLayout {
  // Of one plane; of packed rows the whole row.
  struct PlanePlace {
    std::size_t offset = 0;  // in a layer's block
    std::size_t token_stride = 0, column_stride = 0;
    std::uint32_t bytes = 0;
  };
  std::size_t max_tokens = 0;
  std::uint32_t layers = 0;
  std::uint32_t first_column = 0, columns = 0, column_step = 1;
  std::size_t bytes = 0, layer_stride = 0;
  std::uint32_t planes = 1;
  std::array<PlanePlace, 2> plane;

  // Bytes of the first plane where rows are split, else 0.
  std::uint32_t split_bytes() const { return planes == 2 ? plane[0].bytes : 0; }
};

// InvalidArgument names field, value and limit: columns that a layer does not have, rows that
// cannot be split, more rows than can be read.
absl::StatusOr<StepLayout> TakeLayout(const TableShape& shape, const engram_layout* layout);
// [token][layer][column] of every column, packed: what a step without a layout has.
StepLayout PackedLayout(const TableShape& shape, std::size_t tokens);

}  // namespace engram::client::abi
