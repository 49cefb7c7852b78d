// Synthetic rows: every byte is a pure function of (seed, row, byte), so any reader can check any
// row without the table. A row is the output of SplitMix64 (engram/random.h), eight little-endian
// bytes a draw:
//
//   mix(z)     = z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb;
//                z ^ (z >> 31)
//   state(row) = mix(mix(seed) + row)
//   byte b     = (mix(state(row) + (b / 8 + 1) * 0x9e3779b97f4a7c15) >> 8 * (b % 8)) & 255
//
// all modulo 2^64; `row` is the whole-table RowId, `byte` counts over the packed row (planes in
// order, no seal). Every byte value occurs, those that mean NaN in E4M3 and UE8M0 too: these are
// bytes to compare, not weights to compute with. Pure functions: Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engram/ids.h"

namespace engram {

// Bytes [first_byte, first_byte + out.size()) of `row`.
void FillSyntheticBytes(std::uint64_t seed, RowId row, std::uint64_t first_byte,
                        std::span<std::byte> out);

// One packed row: out.size() is its row bytes.
inline void FillSyntheticRow(std::uint64_t seed, RowId row, std::span<std::byte> out) {
  FillSyntheticBytes(seed, row, 0, out);
}

}  // namespace engram
