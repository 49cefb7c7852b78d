// The part of NumPy's default_rng that the engines use to draw hash multipliers, bit for bit:
// SeedSequence -> PCG64 (XSL-RR 128/64) -> 64-bit Lemire bounded draw (ENGRAM section 4).
// Not a general source of random numbers: see engram/random.h for that.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>

namespace engram {

class NumpyRandom {
 public:
  // numpy.random.default_rng(seed)
  explicit NumpyRandom(std::uint64_t seed);

  std::uint64_t Next();
  // One value of .integers(0, bound). REQUIRES: bound > 2^32 (NumPy takes another path below).
  std::uint64_t Integer(std::uint64_t bound);

 private:
  void Step();

  unsigned __int128 state_ = 0;
  unsigned __int128 increment_ = 0;
};

}  // namespace engram
