#include "client/cache/host_readings.h"

namespace engram::client {
namespace {

// A word: tag, whether bulk, owner, milliseconds. What is cut off may make two units, owners or
// times look the same: then somebody waits for nothing, or does not wait, once.
constexpr std::uint64_t kTagMask = (1u << 24) - 1;
constexpr std::uint64_t kOwnerMask = (1u << 15) - 1;
constexpr std::uint64_t kReadingTimeMask = (1u << 24) - 1;
constexpr int kBulkAt = 24, kOwnerAt = 25, kTimeAt = 40;

std::uint64_t TagIn(std::uint64_t word) { return word & kTagMask; }
bool IsBulk(std::uint64_t word) { return (word >> kBulkAt & 1) != 0; }
bool IsOf(std::uint64_t word, std::uint32_t owner) {
  return (word >> kOwnerAt & kOwnerMask) == (owner & kOwnerMask);
}

std::uint64_t ReadingTime(Instant now) {
  return static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch())
                 .count()) &
         kReadingTimeMask;
}

// A time that is yet to come is long ago: the subtraction wraps.
bool IsForgotten(std::uint64_t word, Instant now) {
  constexpr auto kAfter = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(HostReadings::kForgetAfter).count());
  return ((ReadingTime(now) - (word >> kTimeAt)) & kReadingTimeMask) >= kAfter;
}

std::uint64_t WordOf(std::uint32_t tag, const HostReadings::Reader& reader) {
  return (tag & kTagMask) | (reader.use == CacheUse::kBulk ? 1ull : 0ull) << kBulkAt |
         (reader.owner & kOwnerMask) << kOwnerAt | ReadingTime(reader.now) << kTimeAt;
}

}  // namespace

bool HostReadings::Begin(std::uint32_t tag, const Reader& reader) {
  const std::uint64_t own = WordOf(tag, reader);
  const auto others = [&](std::uint64_t word) {
    return word != 0 && TagIn(word) == TagIn(own) && !IsOf(word, reader.owner) &&
           !IsForgotten(word, reader.now) && (!IsBulk(word) || IsBulk(own));
  };
  std::atomic<std::uint64_t>* place = nullptr;
  std::uint64_t there = 0;
  for (std::atomic<std::uint64_t>& word : words) {
    // Who finds that a reading ended finds what it brought.
    const std::uint64_t value = word.load(std::memory_order_acquire);
    if (others(value)) return false;
    const bool same = value != 0 && TagIn(value) == TagIn(own);
    if (same && IsOf(value, reader.owner)) return true;
    // One's own tag, taken over, before any free place.
    if (same || (place == nullptr && (value == 0 || IsForgotten(value, reader.now)))) {
      place = &word;
      there = value;
      if (same) break;
    }
  }
  // False: somebody was faster; with what, the next look tells.
  return place == nullptr || place->compare_exchange_strong(there, own, std::memory_order_relaxed);
}

void HostReadings::End(std::uint32_t tag, std::uint32_t owner) {
  for (std::atomic<std::uint64_t>& word : words) {
    std::uint64_t value = word.load(std::memory_order_relaxed);
    if (value != 0 && TagIn(value) == (tag & kTagMask) && IsOf(value, owner))
      word.compare_exchange_strong(value, 0, std::memory_order_release);
  }
}

}  // namespace engram::client
