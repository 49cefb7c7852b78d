// The copy of the data plane: many short pieces (8 B to a few KiB) from random places, so a miss on
// every one. Shape and prefetch distance are those measured in FABRIC section 1e; the widest loads
// that the processor has are chosen at run time. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace engram::fabric {

// Rows ahead of the copy that are asked for.
inline constexpr std::size_t kPrefetchRows = 8;

// Asks for every cache line of [from, from + bytes). Inline assembly: g++ 12 drops the builtin from
// small functions.
inline void PrefetchBytes(const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t at = 0; at < bytes; at += 64) {
    __asm__ volatile("prefetcht0 %0" : : "m"(from[at]));
  }
  // A piece that starts inside a line ends in one line more.
  __asm__ volatile("prefetcht0 %0" : : "m"(from[bytes - 1]));
#else
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
  __builtin_prefetch(from + bytes - 1);
#endif
}

// Packs rows: piece s of row i, `piece_bytes[s]` bytes, lands at to[s] + i * piece_bytes[s]; the
// pieces of a row follow each other at from[i]. A null from[i] leaves zeros.
// REQUIRES: at most three pieces, none of zero bytes; from, to do not overlap.
void GatherRows(std::span<const std::byte* const> from, std::span<const std::uint32_t> piece_bytes,
                std::byte* const* to);

// The reverse: the packed pieces `s` at from + i * bytes land at to[i].
void ScatterPieces(const std::byte* from, std::uint32_t bytes, std::span<std::byte* const> to);

// One piece that is neither aligned nor overlapping.
void CopyPiece(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace engram::fabric
