// The seal of a row (engram/sealed_row.h) checked by many lanes at once. CRC32C is linear: the
// register after a message is the sum, over its 8-byte pieces, of the piece times a power of x that
// depends only on where the piece stands. So each lane takes some pieces, and the lanes' sums are
// added with XOR. No tables: a piece costs a loop of 64 shifts. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "client/gpu/host_device.h"

namespace engram::client::gpu {

inline constexpr std::uint32_t kCrcPolynomial = 0x82f63b78;  // Castagnoli, bits reversed
inline constexpr std::uint32_t kCrcOne = 0x80000000;         // the polynomial 1: bit 31 is x^0

// value * x mod P, bits reversed.
ENGRAM_HOST_DEVICE constexpr std::uint32_t CrcTimesX(std::uint32_t value) {
  return (value >> 1) ^ ((0u - (value & 1)) & kCrcPolynomial);
}

// The `bits` low bits of `piece`, first bit of the message lowest, times `weight` mod P.
ENGRAM_HOST_DEVICE constexpr std::uint32_t CrcPiece(std::uint64_t piece, std::uint32_t bits,
                                                    std::uint32_t weight) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = bits; i-- > 0;) {
    sum ^= (0u - static_cast<std::uint32_t>((piece >> i) & 1)) & weight;
    weight = CrcTimesX(weight);
  }
  return sum;
}

// A view; client/gpu/plans.h makes one. Piece 0 is the row id, the others are the row's words, the
// last of which may be shorter.
struct SealPlan {
  const std::uint32_t* weights = nullptr;  // one a piece
  std::uint32_t start = 0;                 // what table_uid contributes
  std::uint32_t row_bytes = 0;

  ENGRAM_HOST_DEVICE std::uint32_t pieces() const { return 1 + (row_bytes + 7) / 8; }
};

// Eight bytes. REQUIRES: `at` is aligned to them.
ENGRAM_HOST_DEVICE inline std::uint64_t LoadWord(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, __builtin_assume_aligned(at, 8), sizeof word);
  return word;
}

// What one lane's pieces add to the register. REQUIRES: `row` is aligned to 8 bytes.
template <class Lanes>
ENGRAM_HOST_DEVICE std::uint32_t SealLane(const SealPlan& plan, std::uint64_t row_id,
                                          const std::byte* row, const Lanes& lanes) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = lanes.lane(); i < plan.pieces(); i += lanes.lanes()) {
    std::uint64_t piece = row_id;
    std::uint32_t bits = 64;
    if (i > 0) {
      const std::uint32_t at = (i - 1) * 8;
      if (plan.row_bytes - at >= 8) {
        piece = LoadWord(row + at);
      } else {
        bits = (plan.row_bytes - at) * 8;
        piece = 0;
        for (std::uint32_t k = 0; k < bits; k += 8)
          piece |= static_cast<std::uint64_t>(row[at + k / 8]) << k;
      }
    }
    sum ^= CrcPiece(piece, bits, plan.weights[i]);
  }
  return sum;
}

// The seal that the row should have. All lanes get it.
template <class Lanes>
ENGRAM_HOST_DEVICE std::uint64_t SealOf(const SealPlan& plan, std::uint64_t row_id,
                                        const std::byte* row, const Lanes& lanes) {
  const std::uint32_t crc = ~(plan.start ^ lanes.Xor(SealLane(plan, row_id, row, lanes)));
  return (row_id << 32) | crc;
}

}  // namespace engram::client::gpu
