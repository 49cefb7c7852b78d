#include "engram/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

namespace engram {

std::uint64_t Random::Below(std::uint64_t bound) {
  // Lemire's bounded draw: reject the low products that would favour small results.
  const std::uint64_t threshold = (0 - bound) % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<std::uint64_t>(product) >= threshold) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

std::uint64_t SystemRandom::Next() {
  std::uint64_t word;
  if (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    perror("engram: getrandom");
    abort();
  }
  return word;
}

std::uint64_t SeededRandom::Next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace engram
