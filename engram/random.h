// The one source of random numbers. Production takes SystemRandom (getrandom, for keys and tokens);
// the simulator and the bench take SeededRandom, whose sequence is the same on every machine.
#pragma once

#include <cstdint>

#include "engram/ids.h"

namespace engram {

// Thread-confined: call from the owner thread only.
class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t Next() = 0;

  // Uniform in [0, bound). REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound);
  template <class Tag>
  Bits128<Tag> Bits() {
    Bits128<Tag> out;
    const std::uint64_t words[2] = {Next(), Next()};
    __builtin_memcpy(out.bytes.data(), words, sizeof words);
    return out;
  }
};

// Unpredictable bits of the kernel.
class SystemRandom final : public Random {
 public:
  std::uint64_t Next() override;
};

// SplitMix64: small, seeded, documented: state += 0x9e3779b97f4a7c15, then two xor-multiply rounds.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() override;

 private:
  std::uint64_t state_;
};

}  // namespace engram
