#include "fabric/copy.h"

#include <algorithm>

namespace engram::fabric {
namespace {

// Vectors of the compiler: the same source becomes 16- or 32-byte moves by the target attribute.
template <std::size_t kWidth>
struct Block {
  typedef unsigned char Bytes __attribute__((vector_size(kWidth), aligned(1), may_alias));
};

template <class T>
[[gnu::always_inline]] inline void Move(std::byte* to, const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  __builtin_memcpy(to, &value, sizeof value);
}

[[gnu::always_inline]] inline void CopyTail(std::byte* to, const std::byte* from,
                                            std::size_t bytes) {
  // Two overlapping moves cover every length without a loop.
  if (bytes >= 16) {
    Move<unsigned __int128>(to, from);
    Move<unsigned __int128>(to + bytes - 16, from + bytes - 16);
  } else if (bytes >= 8) {
    Move<std::uint64_t>(to, from);
    Move<std::uint64_t>(to + bytes - 8, from + bytes - 8);
  } else if (bytes >= 4) {
    Move<std::uint32_t>(to, from);
    Move<std::uint32_t>(to + bytes - 4, from + bytes - 4);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// A load and a store at a time: loading all before storing all costs half the rate.
template <std::size_t kWidth>
[[gnu::always_inline]] inline void CopyWide(std::byte* to, const std::byte* from,
                                            std::size_t bytes) {
  using Wide = typename Block<kWidth>::Bytes;
  while (bytes >= 4 * kWidth) {
    for (std::size_t at = 0; at < 4 * kWidth; at += kWidth) {
      *reinterpret_cast<Wide*>(to + at) = *reinterpret_cast<const Wide*>(from + at);
    }
    to += 4 * kWidth;
    from += 4 * kWidth;
    bytes -= 4 * kWidth;
  }
  while (bytes >= kWidth) {
    *reinterpret_cast<Wide*>(to) = *reinterpret_cast<const Wide*>(from);
    to += kWidth;
    from += kWidth;
    bytes -= kWidth;
  }
  CopyTail(to, from, bytes);
}

template <std::size_t kWidth, std::uint32_t kBytes>
[[gnu::always_inline]] inline void CopyKnown(std::byte* to, const std::byte* from) {
  using Wide = typename Block<kWidth>::Bytes;
#pragma GCC unroll 32
  for (std::size_t at = 0; at + kWidth <= kBytes; at += kWidth) {
    *reinterpret_cast<Wide*>(to + at) = *reinterpret_cast<const Wide*>(from + at);
  }
  constexpr std::size_t kDone = kBytes / kWidth * kWidth;
  CopyTail(to + kDone, from + kDone, kBytes - kDone);
}

// `kRow` and `kSeal`: the bytes of the first and the second piece where they are known here, so
// that the copy is a line of moves without a loop whose end the processor would have to guess while
// it waits for memory; 0: any.
template <std::size_t kWidth, std::uint32_t kRow, std::uint32_t kSeal>
[[gnu::always_inline]] inline void GatherPieces(std::span<const std::byte* const> from,
                                                std::span<const std::uint32_t> pieces,
                                                std::byte* const* to) {
  std::size_t row_bytes = kRow + kSeal;
  if constexpr (kRow == 0) {
    for (std::uint32_t bytes : pieces) row_bytes += bytes;
  }
  const std::size_t rows = from.size();
  for (std::size_t i = 0; i < std::min(kPrefetchRows, rows); ++i) {
    if (from[i] != nullptr) PrefetchBytes(from[i], row_bytes);
  }
  for (std::size_t i = 0; i < rows; ++i) {
    if (i + kPrefetchRows < rows && from[i + kPrefetchRows] != nullptr) {
      PrefetchBytes(from[i + kPrefetchRows], row_bytes);
    }
    const std::byte* at = from[i];
    if constexpr (kRow != 0) {
      if (at != nullptr) [[likely]] {
        CopyKnown<kWidth, kRow>(to[0] + i * kRow, at);
        if constexpr (kSeal != 0) CopyKnown<kWidth, kSeal>(to[1] + i * kSeal, at + kRow);
        continue;
      }
    }
    for (std::size_t s = 0; s < pieces.size(); ++s) {
      std::byte* out = to[s] + i * pieces[s];
      if (at == nullptr) {
        std::memset(out, 0, pieces[s]);
        continue;
      }
      CopyWide<kWidth>(out, at, pieces[s]);
      at += pieces[s];
    }
  }
}

// The widths of the models' rows: 264 (FP8 with scales), sealed or not.
template <std::size_t kWidth>
[[gnu::always_inline]] inline void Gather(std::span<const std::byte* const> from,
                                          std::span<const std::uint32_t> pieces,
                                          std::byte* const* to) {
  if (pieces.size() == 2 && pieces[0] == 264 && pieces[1] == 8) {
    GatherPieces<kWidth, 264, 8>(from, pieces, to);
  } else if (pieces.size() == 1 && pieces[0] == 264) {
    GatherPieces<kWidth, 264, 0>(from, pieces, to);
  } else {
    GatherPieces<kWidth, 0, 0>(from, pieces, to);
  }
}

template <std::size_t kWidth>
[[gnu::always_inline]] inline void Scatter(const std::byte* from, std::uint32_t bytes,
                                           std::span<std::byte* const> to) {
  for (std::byte* out : to) {
    CopyWide<kWidth>(out, from, bytes);
    from += bytes;
  }
}

struct Copies {
  void (*gather)(std::span<const std::byte* const>, std::span<const std::uint32_t>,
                 std::byte* const*);
  void (*scatter)(const std::byte*, std::uint32_t, std::span<std::byte* const>);
  void (*piece)(std::byte*, const std::byte*, std::size_t);
};

constexpr Copies kNarrow = {
    [](std::span<const std::byte* const> from, std::span<const std::uint32_t> pieces,
       std::byte* const* to) { Gather<16>(from, pieces, to); },
    [](const std::byte* from, std::uint32_t bytes, std::span<std::byte* const> to) {
      Scatter<16>(from, bytes, to);
    },
    [](std::byte* to, const std::byte* from, std::size_t bytes) { CopyWide<16>(to, from, bytes); },
};

#if defined(__x86_64__)
__attribute__((target("avx2"))) void GatherAvx2(std::span<const std::byte* const> from,
                                                std::span<const std::uint32_t> pieces,
                                                std::byte* const* to) {
  Gather<32>(from, pieces, to);
}
__attribute__((target("avx2"))) void ScatterAvx2(const std::byte* from, std::uint32_t bytes,
                                                 std::span<std::byte* const> to) {
  Scatter<32>(from, bytes, to);
}
__attribute__((target("avx2"))) void PieceAvx2(std::byte* to, const std::byte* from,
                                               std::size_t bytes) {
  CopyWide<32>(to, from, bytes);
}

Copies Choose() {
  if (__builtin_cpu_supports("avx2")) return {GatherAvx2, ScatterAvx2, PieceAvx2};
  return kNarrow;
}
#else
Copies Choose() { return kNarrow; }
#endif

const Copies& Chosen() {
  static const Copies copies = Choose();
  return copies;
}

}  // namespace

void GatherRows(std::span<const std::byte* const> from, std::span<const std::uint32_t> piece_bytes,
                std::byte* const* to) {
  Chosen().gather(from, piece_bytes, to);
}

void ScatterPieces(const std::byte* from, std::uint32_t bytes, std::span<std::byte* const> to) {
  Chosen().scatter(from, bytes, to);
}

void CopyPiece(std::byte* to, const std::byte* from, std::size_t bytes) {
  Chosen().piece(to, from, bytes);
}

}  // namespace engram::fabric
