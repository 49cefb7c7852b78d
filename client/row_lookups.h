// The insides of a RowReader that looks rows up: n-grams gathered for one look into the cache.
// Included by the row_*.cc files only. Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {

struct RowReader::Lookups {
  static constexpr std::uint32_t kMost = 32;

  explicit Lookups(std::uint32_t unit_rows)
      : unit_rows(unit_rows),
        ids(std::size_t{kMost} * unit_rows),
        out(ids.size()),
        from(unit_rows) {}

  // REQUIRES: count < kMost, rows.size() <= unit_rows.
  void Add(std::uint32_t position, std::span<const Row> rows) {
    const std::size_t first = std::size_t{count} * unit_rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ids[first + i] = rows[i].id;
      out[first + i] = rows[i].out;
    }
    const std::span<const RowId> unit(&ids[first], rows.size());
    positions[count] = position;
    probes[count++] = {unit, &out[first], HashOf(unit)};
  }

  const std::uint32_t unit_rows;
  std::uint32_t count = 0;
  std::array<CacheProbe, kMost> probes;
  std::array<std::uint32_t, kMost> positions;
  std::vector<RowId> ids;
  std::vector<std::byte*> out;
  std::vector<const std::byte*> from;  // of one n-gram
};

}  // namespace engram::client
