// The body of kGatherBaseline and kGatherAvx2: included by both sources, each compiled for its own
// instruction set. Everything here has internal linkage, so the two never mix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/mapped/gather.h"

namespace engram::fabric {
namespace {

// One load and one store of N bytes (two of each where the registers are narrower).
template <std::size_t N>
inline void Move(std::byte* to, const std::byte* from) {
  __builtin_memcpy(to, from, N);
}

// One register where there are such registers; the compiler would split a memcpy of 32 bytes.
typedef long long Word32 __attribute__((vector_size(32), aligned(1), may_alias));
template <>
inline void Move<32>(std::byte* to, const std::byte* from) {
  *reinterpret_cast<Word32*>(to) = *reinterpret_cast<const Word32*>(from);
}

// Eight load/store pairs in a row for each 256 bytes: twice as fast as loading all first.
[[gnu::always_inline]] inline void Copy(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (; bytes >= 256; bytes -= 256, to += 256, from += 256) {
    Move<32>(to, from);
    Move<32>(to + 32, from + 32);
    Move<32>(to + 64, from + 64);
    Move<32>(to + 96, from + 96);
    Move<32>(to + 128, from + 128);
    Move<32>(to + 160, from + 160);
    Move<32>(to + 192, from + 192);
    Move<32>(to + 224, from + 224);
  }
  for (; bytes >= 32; bytes -= 32, to += 32, from += 32) Move<32>(to, from);
  if (bytes & 16) Move<16>(to, from), to += 16, from += 16;
  if (bytes & 8) Move<8>(to, from), to += 8, from += 8;
  if (bytes & 4) Move<4>(to, from), to += 4, from += 4;
  if (bytes & 2) Move<2>(to, from), to += 2, from += 2;
  if (bytes & 1) *to = *from;
}

// Assembly, because the compiler may drop the intrinsic. A bad address does not fault.
inline void PrefetchRange(std::uint64_t start, std::uint32_t bytes) {
  constexpr std::uint32_t kMost = 512;  // further on the hardware sees the stream
  const std::uint64_t end = start + (bytes < kMost ? bytes : kMost);
  for (std::uint64_t line = start & ~std::uint64_t{63}; line < end; line += 64) {
#if defined(__x86_64__)
    asm volatile("prefetcht0 (%0)" : : "r"(line));
#else
    __builtin_prefetch(reinterpret_cast<const void*>(line));
#endif
  }
}

inline void Prefetch(const ReadOp& op) { PrefetchRange(op.region.address + op.offset, op.length); }

// A region is named by its address in this process.
inline const std::byte* AtAddress(std::uint64_t address) {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

inline bool Allowed(const ReadOp& op, std::uint64_t key) {
  std::uint64_t landing = op.local[0].bytes;
  for (std::uint8_t i = 1; i < op.segments && i < kMaxLocalSegments; ++i) {
    landing += op.local[i].bytes;
  }
  return op.region.key == key && op.offset <= op.region.length &&
         op.length <= op.region.length - op.offset && landing == op.length && op.segments >= 1 &&
         op.segments <= kMaxLocalSegments;
}

inline ReadStatus ReadOne(const ReadOp& op, std::uint64_t key) {
  if (!Allowed(op, key)) [[unlikely]]
    return ReadStatus::kRefused;
  auto from = AtAddress(op.region.address + op.offset);
  Copy(op.local[0].data, from, op.local[0].bytes);
  for (std::uint8_t i = 1; i < op.segments; ++i) {
    from += op.local[i - 1].bytes;
    Copy(op.local[i].data, from, op.local[i].bytes);
  }
  return ReadStatus::kOk;
}

constexpr std::size_t kAhead = 8;  // rows between the prefetch and the copy

inline void GatherOps(const ReadOp* ops, std::size_t count, std::uint64_t key,
                      CompletionRing ring) {
  const std::size_t first = count < kAhead ? count : kAhead;
  for (std::size_t i = 0; i < first; ++i) Prefetch(ops[i]);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) Prefetch(ops[i + kAhead]);
    ReadCompletion& done = ring.entries[(ring.start + i) & ring.mask];
    done.cookie = ops[i].cookie;
    done.status = ReadOne(ops[i], key);
  }
}

// Rows of a width known here: the loop that waits for memory does nothing else, and has no loop
// over bytes, whose exits the processor would have to guess.
template <std::uint32_t kStored>
[[gnu::always_inline]] inline void PrefetchStored(std::uint64_t start) {
#if defined(__x86_64__)
#pragma GCC unroll 16
  for (std::uint32_t at = 0; at < kStored; at += 64) {
    asm volatile("prefetcht0 (%0)" : : "r"(start + at));
  }
  asm volatile("prefetcht0 (%0)" : : "r"(start + kStored - 1));
#else
  for (std::uint32_t at = 0; at < kStored; at += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(start + at));
  }
#endif
}

template <std::uint32_t kBytes>
[[gnu::always_inline]] inline void CopyRow(std::byte* to, const std::byte* from) {
#pragma GCC unroll 16
  for (std::uint32_t at = 0; at + 32 <= kBytes; at += 32) Move<32>(to + at, from + at);
  constexpr std::uint32_t kDone = kBytes / 32 * 32;
  if constexpr (kBytes - kDone == 8) Move<8>(to + kDone, from + kDone);
  static_assert(kBytes - kDone == 0 || kBytes - kDone == 8);
}

template <std::uint32_t kBytes, bool kSealed>
inline void GatherRowsOf(const RowsNow& rows) {
  constexpr std::uint32_t kStored = kBytes + (kSealed ? 8 : 0);
  const std::uint64_t* const from = rows.from;
  std::byte* const* const to = rows.to;
  std::uint64_t* const seals = rows.seals;
  const std::size_t count = rows.count, known = rows.count + rows.next;
  const std::size_t first = known < kAhead ? known : kAhead;
  for (std::size_t i = 0; i < first; ++i) PrefetchStored<kStored>(from[i]);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < known) PrefetchStored<kStored>(from[i + kAhead]);
    const std::byte* const row = AtAddress(from[i]);
    CopyRow<kBytes>(to[i], row);
    if (kSealed) Move<8>(reinterpret_cast<std::byte*>(seals + i), row + kBytes);
  }
}

inline void GatherRowsOfAnyWidth(const RowsNow& rows) {
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (i + kAhead < rows.count + rows.next)
      PrefetchRange(rows.from[i + kAhead], rows.row_bytes + 8);
    const std::byte* const row = AtAddress(rows.from[i]);
    Copy(rows.to[i], row, rows.row_bytes);
    if (rows.seals != nullptr)
      Move<8>(reinterpret_cast<std::byte*>(rows.seals + i), row + rows.row_bytes);
  }
}

template <std::uint32_t kBytes>
inline void GatherSealedOrNot(const RowsNow& rows) {
  rows.seals == nullptr ? GatherRowsOf<kBytes, false>(rows) : GatherRowsOf<kBytes, true>(rows);
}

// Widths of the models' rows (FP8 with scales, FP8, BF16), or any.
inline void GatherRowsNow(const RowsNow& rows) {
  switch (rows.row_bytes) {
    case 264: return GatherSealedOrNot<264>(rows);
    case 160: return GatherSealedOrNot<160>(rows);
    case 320: return GatherSealedOrNot<320>(rows);
    default: return GatherRowsOfAnyWidth(rows);
  }
}

}  // namespace
}  // namespace engram::fabric
