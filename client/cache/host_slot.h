// One place of a host cache: a unit in memory that several processes read and write at once, any of
// which may be stopped or killed between any two steps.
//
// A writer takes the owner word by compare-and-swap, makes the sequence odd, writes, makes it even
// and lets the owner word go. One that was killed keeps the owner word: after a second another may
// take it. One that was only stopped may wake and write into a unit that is no longer its own; so
// nothing that is read is believed: a reader copies word by word, looks whether the sequence is
// still the one from before, compares every row id, and checks every row's seal.
//
// A view: the memory is the cache's. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "client/cache/row_cache.h"
#include "engram/clock.h"
#include "engram/sealed_row.h"

namespace engram::client {

// How single words of shared memory are read and written where their order does not matter.
inline constexpr auto kRelaxed = std::memory_order_relaxed;

struct HostSlotShape {
  std::uint32_t unit_rows = 1;
  std::uint32_t row_bytes = 0;

  std::size_t row_words() const { return (row_bytes + 7) / 8; }
  std::size_t words() const { return 4 + unit_rows * (2 + row_words()); }
  std::size_t bytes() const { return (words() * 8 + 63) / 64 * 64; }
};

class HostSlot {
 public:
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::uint32_t kMostUnitRows = 64;
  static constexpr Duration kStealAfter = std::chrono::seconds(1);

  HostSlot(std::byte* memory, const HostSlotShape& shape)
      : words_(reinterpret_cast<Word*>(memory)), shape_(shape) {}

  // ---- writing: each step by itself, so that a writer can be stopped between them ----

  // Who writes: a number of the process, other than that of any other, and since when.
  static std::uint64_t OwnerWord(std::uint32_t owner, Instant now);
  // False: somebody else writes here.
  bool Claim(std::uint64_t owner, Instant now);
  // What was there is not there any more. Returns the odd sequence.
  std::uint64_t Begin();
  void WriteRow(std::uint32_t index, RowId id, const std::byte* bytes, std::uint64_t seal);
  // The unit is there; false: it was stolen meanwhile, and nothing is changed.
  bool Publish(std::uint32_t rows, std::uint64_t sequence, std::uint64_t owner);
  // Without publishing.
  void Release(std::uint64_t owner);

  // ---- reading ----

  enum class Found : std::uint8_t { kOther, kHit, kDamaged };
  // kHit: every row was written to its place. kDamaged: the ids are these, but a seal is wrong.
  Found Read(std::span<const RowId> ids, std::byte* const* out, const RowSealer& sealer) const;
  bool Holds(std::span<const RowId> ids) const;
  // The ids, or none when it is being written.
  std::size_t Ids(std::span<RowId> ids) const;
  std::uint64_t hits() const { return words_[3].load(std::memory_order_relaxed); }
  // Counts are estimates: two at once may count once.
  void CountHit() { words_[3].store(hits() + 1, std::memory_order_relaxed); }

 private:
  Word& Sequence() const { return words_[0]; }
  Word& Owner() const { return words_[1]; }
  Word& Rows() const { return words_[2]; }
  Word* IdOf(std::uint32_t row) const { return words_ + 4 + row; }
  Word* SealOf(std::uint32_t row) const { return words_ + 4 + shape_.unit_rows + row; }
  Word* BytesOf(std::uint32_t row) const {
    return words_ + 4 + 2 * shape_.unit_rows + row * shape_.row_words();
  }
  bool SameIds(std::span<const RowId> ids) const;

  Word* const words_;
  const HostSlotShape shape_;
};

}  // namespace engram::client
