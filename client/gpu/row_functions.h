// From a row in a landing buffer to a row that a layer can use: gather, seal check, then
// dequantised to BF16 or split into planes. A row's work is shared by the lanes of a warp, or done
// by one caller. The kernels of kernels.cu are loops around DeliverRow. Skipped rows become zeros;
// rows that failed, or whose seal is wrong, become poison: NaN in every element. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "client/gpu/dequantise.h"
#include "client/gpu/hash_row.h"
#include "client/gpu/host_device.h"
#include "client/gpu/seal_row.h"

namespace engram::client::gpu {

inline constexpr std::uint32_t kValuesPerScale = 32;

// Packed: E4M3 values, then one UE8M0 scale for 32 of them.
struct RowFormat {
  std::uint32_t value_bytes = 0;  // a multiple of 32
  ENGRAM_HOST_DEVICE std::uint32_t scale_bytes() const { return value_bytes / kValuesPerScale; }
  ENGRAM_HOST_DEVICE std::uint32_t row_bytes() const { return value_bytes + scale_bytes(); }
};

// Where rows landed. Rows are aligned to 8 bytes: so is `rows`, and row_stride is a multiple of 8.
struct Landing {
  const std::byte* rows = nullptr;
  std::size_t row_stride = 0;
  const std::int32_t* source = nullptr;  // row of the landing buffer of each row delivered,
                                         // negative: skipped; null: row i is row i
  const std::uint8_t* failed = nullptr;  // null, or of each landed row: not 0 when it is not there
  // Ids in the layer's own table, of the rows delivered; a negative one is skipped. At most one of
  // them; neither: nothing is skipped by id.
  const std::int32_t* ids32 = nullptr;
  const std::int64_t* ids64 = nullptr;
  // Ids of so many rows stand together, then come those of the next token; 0: all do.
  std::uint32_t id_columns = 0;
  std::size_t id_token_stride = 0;
  // Rows whose seals nobody has looked at: the seal follows the row. Needs ids.
  bool check_seals = false;
  SealPlan seal;
  std::uint64_t first_row = 0;  // of the layer in the whole table: seals name whole-table rows
};

enum class RowOutcome : std::uint8_t { kDelivered = 0, kSkipped = 1, kFailed = 2, kCorrupt = 3 };

// What becomes of row `i`, and where it is.
struct FoundRow {
  RowOutcome outcome = RowOutcome::kDelivered;
  const std::byte* row = nullptr;
};

template <class Lanes>
ENGRAM_HOST_DEVICE FoundRow FindRow(const Landing& from, std::uint32_t i, const Lanes& lanes) {
  std::size_t place = i;
  if (from.id_columns != 0)
    place = i / from.id_columns * from.id_token_stride + i % from.id_columns;
  std::int64_t id = 0;
  if (from.ids32 != nullptr) id = from.ids32[place];
  if (from.ids64 != nullptr) id = from.ids64[place];
  const std::int64_t at = from.source == nullptr ? std::int64_t{i} : from.source[i];
  if (id < 0 || at < 0) return {RowOutcome::kSkipped, nullptr};
  if (from.failed != nullptr && from.failed[at] != 0) return {RowOutcome::kFailed, nullptr};
  const std::byte* const row = from.rows + static_cast<std::size_t>(at) * from.row_stride;
  if (from.check_seals) {
    const std::uint64_t seal =
        SealOf(from.seal, static_cast<std::uint64_t>(id) + from.first_row, row, lanes);
    std::uint64_t found = 0;
    for (std::uint32_t k = 0; k < 8; ++k)
      found |= static_cast<std::uint64_t>(row[from.seal.row_bytes + k]) << (8 * k);
    if (found != seal) return {RowOutcome::kCorrupt, nullptr};
  }
  return {RowOutcome::kDelivered, row};
}

// Eight elements of a BF16 row at a time: 16 bytes.
struct Bf16Output {
  std::uint16_t* rows = nullptr;  // aligned to 16 bytes
  std::size_t row_stride = 0;     // in elements, a multiple of 8
  RowFormat format;
  DequantiseRule rule;

  struct alignas(16) Eight {
    std::uint16_t bits[8];
  };
  ENGRAM_HOST_DEVICE Eight* At(std::uint32_t i, std::uint32_t eight) const {
    return reinterpret_cast<Eight*>(rows + i * row_stride) + eight;
  }
  template <class Lanes>
  ENGRAM_HOST_DEVICE void Deliver(std::uint32_t i, const std::byte* row, const Lanes& lanes) const {
    for (std::uint32_t k = lanes.lane(); k < format.value_bytes / 8; k += lanes.lanes()) {
      const std::uint64_t values = LoadWord(row + k * 8);
      const auto scale =
          static_cast<std::uint8_t>(row[format.value_bytes + k * 8 / kValuesPerScale]);
      Eight out;
      for (std::uint32_t e = 0; e < 8; ++e)
        out.bits[e] = DequantiseBf16(static_cast<std::uint8_t>(values >> (8 * e)), scale, rule);
      *At(i, k) = out;
    }
  }
  template <class Lanes>
  ENGRAM_HOST_DEVICE void Fill(std::uint32_t i, bool poison, const Lanes& lanes) const {
    Eight out;
    for (std::uint16_t& bits : out.bits) bits = poison ? kBf16Nan : 0;
    for (std::uint32_t k = lanes.lane(); k < format.value_bytes / 8; k += lanes.lanes())
      *At(i, k) = out;
  }
};

// Values and scales apart, each packed row by row.
struct PlanesOutput {
  std::byte* values = nullptr;  // value_bytes a row, aligned to 8 bytes
  std::byte* scales = nullptr;  // scale_bytes a row
  RowFormat format;

  template <class Lanes>
  ENGRAM_HOST_DEVICE void Deliver(std::uint32_t i, const std::byte* row, const Lanes& lanes) const {
    std::byte* const to = values + static_cast<std::size_t>(i) * format.value_bytes;
    for (std::uint32_t k = lanes.lane() * 8; k < format.value_bytes; k += lanes.lanes() * 8) {
      const std::uint64_t word = LoadWord(row + k);
      std::memcpy(__builtin_assume_aligned(to + k, 8), &word, sizeof word);
    }
    std::byte* const scale = scales + static_cast<std::size_t>(i) * format.scale_bytes();
    for (std::uint32_t k = lanes.lane(); k < format.scale_bytes(); k += lanes.lanes())
      scale[k] = row[format.value_bytes + k];
  }
  template <class Lanes>
  ENGRAM_HOST_DEVICE void Fill(std::uint32_t i, bool poison, const Lanes& lanes) const {
    std::byte* const to = values + static_cast<std::size_t>(i) * format.value_bytes;
    std::byte* const scale = scales + static_cast<std::size_t>(i) * format.scale_bytes();
    for (std::uint32_t k = lanes.lane(); k < format.value_bytes; k += lanes.lanes())
      to[k] = std::byte{poison ? kE4M3Nan : std::uint8_t{0}};
    for (std::uint32_t k = lanes.lane(); k < format.scale_bytes(); k += lanes.lanes())
      scale[k] = std::byte{poison ? kUe8m0Nan : std::uint8_t{0}};
  }
};

// Row `i` of what is delivered, to row `to_row` of the output. `all_failed`: the landing buffer
// holds anything, and the row is poison, skipped or not.
template <class Output, class Lanes>
ENGRAM_HOST_DEVICE RowOutcome DeliverRow(const Landing& from, std::uint32_t i, bool all_failed,
                                         const Output& to, std::uint32_t to_row,
                                         const Lanes& lanes) {
  if (all_failed) {
    to.Fill(to_row, true, lanes);
    return RowOutcome::kFailed;
  }
  const FoundRow found = FindRow(from, i, lanes);
  if (found.outcome == RowOutcome::kDelivered) {
    to.Deliver(to_row, found.row, lanes);
  } else {
    to.Fill(to_row, found.outcome != RowOutcome::kSkipped, lanes);
  }
  return found.outcome;
}

}  // namespace engram::client::gpu
