#include "engram/addressing/numpy_random.h"

#include <array>
#include <bit>

namespace engram {
namespace {

constexpr std::size_t kPoolWords = 4;
using Pool = std::array<std::uint32_t, kPoolWords>;

class HashMix {
 public:
  HashMix(std::uint32_t start, std::uint32_t multiplier) : hash_(start), multiplier_(multiplier) {}
  std::uint32_t operator()(std::uint32_t value) {
    value ^= hash_;
    hash_ *= multiplier_;
    value *= hash_;
    return value ^ (value >> 16);
  }

 private:
  std::uint32_t hash_;
  std::uint32_t multiplier_;
};

std::uint32_t Mix(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ (mixed >> 16);
}

Pool MixedPool(std::uint64_t seed) {
  HashMix hash(0x43b0d7e5, 0x931e8875);
  Pool pool{};
  // A seed below 2^32 has one word; the missing words hash as zero, and so does a zero high word.
  for (std::size_t i = 0; i < kPoolWords; ++i) {
    pool[i] = hash(i < 2 ? static_cast<std::uint32_t>(seed >> (32 * i)) : 0);
  }
  for (std::size_t source = 0; source < kPoolWords; ++source) {
    for (std::size_t target = 0; target < kPoolWords; ++target) {
      if (source != target) pool[target] = Mix(pool[target], hash(pool[source]));
    }
  }
  return pool;
}

unsigned __int128 Wide(std::uint64_t high, std::uint64_t low) {
  return static_cast<unsigned __int128>(high) << 64 | low;
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint64_t seed) {
  const Pool pool = MixedPool(seed);
  HashMix hash(0x8b51f9dd, 0x58f38ded);
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < 8; ++i) {
    words[i / 2] |= static_cast<std::uint64_t>(hash(pool[i % kPoolWords])) << (32 * (i % 2));
  }
  increment_ = Wide(words[2], words[3]) << 1 | 1;
  Step();
  state_ += Wide(words[0], words[1]);
  Step();
}

void NumpyRandom::Step() {
  state_ = state_ * Wide(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_;
}

std::uint64_t NumpyRandom::Next() {
  Step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  const auto low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint64_t NumpyRandom::Integer(std::uint64_t bound) {
  const std::uint64_t threshold = (0 - bound) % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<std::uint64_t>(product) >= threshold) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

}  // namespace engram
