// E4M3 value x UE8M0 scale -> BF16 (ENGRAM 7), in integers, so that a CPU and every GPU give the
// same bits whatever they do with subnormal numbers: value x 2^(scale - 127), rounded once, to
// nearest even; beyond the range of BF16 infinity. NaN when the value or the scale is NaN, so a
// poisoned row is NaN in every element. Thread-safe.
#pragma once

#include <cstdint>

#include "client/gpu/host_device.h"

namespace engram::client::gpu {

inline constexpr std::uint16_t kBf16Nan = 0x7fff;  // the poison of BF16
inline constexpr std::uint16_t kBf16Infinity = 0x7f80;
inline constexpr std::uint8_t kE4M3Nan = 0x7f;
inline constexpr std::uint8_t kUe8m0Nan = 0xff;

// Where the engines differ.
struct DequantiseRule {
  // Scale byte 0 means 0.0 (vLLM) instead of 2^-127 (SGLang).
  bool zero_scale_is_zero = false;
  // -0 becomes +0, as SGLang's peer gather has it.
  bool fold_negative_zero = false;
};

namespace dequantise_internal {

// significand x 2^exponent, not negative. REQUIRES: significand < 16.
ENGRAM_HOST_DEVICE constexpr std::uint32_t MagnitudeBf16(std::uint32_t significand, int exponent) {
  constexpr int kLeast = -126, kSmallest = -133;  // normal exponent; subnormal unit
  if (significand == 0) return 0;
  while (significand < 8) {
    significand <<= 1;
    --exponent;
  }
  const int power = exponent + 3;  // significand / 8 is in [1, 2)
  if (power > 127) return kBf16Infinity;
  if (power >= kLeast) return static_cast<std::uint32_t>(power + 127) << 7 | (significand & 7) << 4;
  const int shift = kSmallest - exponent;
  if (shift <= 0) return significand << -shift;
  if (shift > 5) return 0;  // below half of the smallest
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rest = significand & ((1u << shift) - 1);
  const std::uint32_t whole = significand >> shift;
  return whole + (rest > half || (rest == half && (whole & 1) != 0) ? 1 : 0);
}

}  // namespace dequantise_internal

// The bits of a BF16 number.
ENGRAM_HOST_DEVICE constexpr std::uint16_t DequantiseBf16(std::uint8_t value, std::uint8_t scale,
                                                          DequantiseRule rule) {
  if ((value & 0x7f) == kE4M3Nan || scale == kUe8m0Nan) return kBf16Nan;
  const std::uint32_t field = value >> 3 & 15;
  const std::uint32_t significand = field == 0 ? value & 7u : 8u | (value & 7u);
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - 10 + scale - 127;
  std::uint32_t magnitude = dequantise_internal::MagnitudeBf16(significand, exponent);
  if (scale == 0 && rule.zero_scale_is_zero) magnitude = 0;
  if (magnitude == 0 && rule.fold_negative_zero) return 0;
  return static_cast<std::uint16_t>(magnitude | (value & 0x80u) << 8);
}

}  // namespace engram::client::gpu
