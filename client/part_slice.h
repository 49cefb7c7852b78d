// Arithmetic over a ReadPart: cutting it into slices that are read by themselves, and finding an id
// or the place of a row in it. A part is cut between runs, or, when it has one run, between rows:
// its units. Pure functions: Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "client/row_reader.h"

namespace engram::client {

inline std::size_t IdBytes(ReadPart::IdKind kind) {
  return kind == ReadPart::IdKind::kInt32 ? sizeof(std::int32_t) : sizeof(std::int64_t);
}

// Of a single run the rows, of several the runs.
inline std::uint32_t Units(const ReadPart& part) {
  return part.runs == 1 ? part.run_rows : part.runs;
}
inline std::uint32_t UnitRows(const ReadPart& part) { return part.runs == 1 ? 1 : part.run_rows; }

// The units [first, first + count) of a part.
inline ReadPart Slice(const ReadPart& part, std::uint32_t first, std::uint32_t count) {
  ReadPart out = part;
  const bool rows = part.runs == 1;
  const std::size_t id_stride = rows ? part.id_stride : part.run_id_stride;
  out.ids = static_cast<const std::byte*>(part.ids) + first * id_stride * IdBytes(part.id_kind);
  out.out = part.out + first * (rows ? part.row_stride : part.run_stride);
  if (part.split_bytes > 0)
    out.rest = part.rest + first * (rows ? part.rest_row_stride : part.rest_run_stride);
  if (part.row_status != nullptr)
    out.row_status = part.row_status + std::size_t{first} * UnitRows(part);
  (rows ? out.run_rows : out.runs) = count;
  return out;
}

// As it was given: negative ids are large ones.
inline std::uint64_t IdAt(const ReadPart& part, std::size_t position) {
  const std::size_t at =
      position / part.run_rows * part.run_id_stride + position % part.run_rows * part.id_stride;
  if (part.id_kind == ReadPart::IdKind::kInt32)
    return static_cast<std::uint64_t>(std::int64_t{static_cast<const std::int32_t*>(part.ids)[at]});
  return static_cast<const std::uint64_t*>(part.ids)[at];
}

// Copies a packed row to where the part wants row `index` of run `run`.
inline void PutRow(const ReadPart& part, std::uint32_t run, std::uint32_t index,
                   const std::byte* row, std::size_t row_bytes) {
  std::byte* const out = part.out + run * part.run_stride + index * part.row_stride;
  if (part.split_bytes == 0) {
    std::memcpy(out, row, row_bytes);
    return;
  }
  std::memcpy(out, row, part.split_bytes);
  std::memcpy(part.rest + run * part.rest_run_stride + index * part.rest_row_stride,
              row + part.split_bytes, row_bytes - part.split_bytes);
}

}  // namespace engram::client
