// Remainder by a modulus that is known before the loop, without a division: one high product, one
// shift, one low product. Exact for every dividend below 2^63. Immutable: Thread-safe.
//
// With l = ceil(log2(d)) and m = ceil(2^(63 + l) / d), m fits 64 bits and
// floor(n / d) = floor(n * m / 2^(63 + l)) for all n < 2^63 (Granlund and Montgomery 1994, theorem
// 4.2: 2^(63+l) <= m * d <= 2^(63+l) + 2^l).
#pragma once

#include <bit>
#include <cstdint>

namespace engram {

class FixedModulus {
 public:
  // REQUIRES: 2 <= modulus < 2^63.
  explicit constexpr FixedModulus(std::uint64_t modulus)
      : modulus_(modulus), shift_(static_cast<std::uint32_t>(std::bit_width(modulus - 1)) - 1) {
    const auto power = static_cast<unsigned __int128>(1) << (64 + shift_);
    magic_ = static_cast<std::uint64_t>((power + modulus - 1) / modulus);
  }

  // n mod modulus. REQUIRES: n < 2^63.
  constexpr std::uint64_t operator()(std::uint64_t n) const {
    const auto high =
        static_cast<std::uint64_t>((static_cast<unsigned __int128>(n) * magic_) >> 64);
    return n - (high >> shift_) * modulus_;
  }
  constexpr std::uint64_t modulus() const { return modulus_; }

 private:
  std::uint64_t magic_ = 0;
  std::uint64_t modulus_;
  std::uint32_t shift_;
};

}  // namespace engram
