#include "engram/synthetic.h"

#include <algorithm>
#include <cstring>

namespace engram {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

void FillSyntheticBytes(std::uint64_t seed, RowId row, std::uint64_t first_byte,
                        std::span<std::byte> out) {
  const std::uint64_t start = Mix(Mix(seed) + row.value());
  std::uint64_t state = start + (first_byte / 8) * kGolden;
  std::byte* at = out.data();
  std::size_t left = out.size();
  if (const std::size_t skip = first_byte % 8; skip != 0 && left > 0) {
    const std::uint64_t word = Mix(state += kGolden) >> (8 * skip);
    const std::size_t take = std::min(left, 8 - skip);
    std::memcpy(at, &word, take);
    at += take;
    left -= take;
  }
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = Mix(state += kGolden);
    std::memcpy(at, &word, sizeof word);
  }
  if (left > 0) {
    const std::uint64_t word = Mix(state + kGolden);
    std::memcpy(at, &word, left);
  }
}

}  // namespace engram
