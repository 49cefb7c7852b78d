// Units and rows for tests of row caches: unit n has `rows` consecutive row ids, and every row's
// bytes follow from its id. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cache/row_cache.h"

namespace engram::client {

inline constexpr std::uint32_t kCachedRowBytes = 24;

inline std::byte CachedByte(RowId row, std::uint32_t at) {
  return static_cast<std::byte>(row.value() * 37 + at * 5 + 1);
}

// A unit with its bytes, as a reader has it after delivery, and a place to read it into.
struct Unit {
  explicit Unit(std::uint64_t number, std::uint32_t rows = 4) {
    for (std::uint32_t i = 0; i < rows; ++i) ids.push_back(RowId(number * rows + i));
    bytes.resize(std::size_t{rows} * kCachedRowBytes);
    out.resize(bytes.size());
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::uint32_t at = 0; at < kCachedRowBytes; ++at)
        bytes[i * kCachedRowBytes + at] = CachedByte(ids[i], at);
      from.push_back(&bytes[i * kCachedRowBytes]);
      to.push_back(&out[i * kCachedRowBytes]);
    }
  }
  CacheFill fill() const { return {ids, from.data(), HashOf(ids)}; }
  CacheProbe probe() const { return {ids, to.data(), HashOf(ids)}; }

  // Reads the unit; false: not there. A hit with other bytes than the unit's is `wrong`.
  bool Read(RowCache& cache, CacheUse use = CacheUse::kStep) {
    CacheProbe one = probe();
    cache.Read({&one, 1}, use);
    wrong |= one.hit && out != bytes;
    return one.hit;
  }
  // What a reader does: look it up, else read it and give it to the cache.
  bool Want(RowCache& cache, CacheUse use = CacheUse::kStep) {
    const bool hit = Read(cache, use);
    if (!hit) cache.Fill(fill(), use);
    return hit;
  }

  std::vector<RowId> ids;
  std::vector<std::byte> bytes, out;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  bool wrong = false;
};

}  // namespace engram::client
