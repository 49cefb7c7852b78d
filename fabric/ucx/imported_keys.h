// What a reader learnt of a peer's regions, by the numbers that it gives to them itself: a
// RemoteRegion has room for 64 bits of key, and a key of UCX takes more. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"

namespace engram::fabric::ucx {

struct ImportedKey {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::vector<std::byte> packed;
};

class ImportedKeys {
 public:
  static constexpr std::uint64_t kSlots = std::uint64_t{1} << 24;
  // A place for tables that are indexed by it: small, and used again after Remove.
  static std::size_t SlotOf(std::uint64_t number) { return number % kSlots; }

  // Returns its number: the slot, under the upper bits of `granted`, the key that the target gave,
  // so that a number that was made up or is stale is not mistaken for another.
  std::uint64_t Add(std::uint64_t granted, ImportedKey key) {
    MutexLock lock(&mutex_);
    std::size_t slot = entries_.size();
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    } else {
      entries_.emplace_back();
    }
    const std::uint64_t number = granted / kSlots * kSlots + slot;
    entries_[slot] = {number, true, std::move(key)};
    return number;
  }
  void Remove(std::uint64_t number) {
    MutexLock lock(&mutex_);
    const std::size_t slot = SlotOf(number);
    if (!Has(number)) return;
    entries_[slot] = Entry();
    free_.push_back(slot);
  }
  std::optional<ImportedKey> Find(std::uint64_t number) const {
    MutexLock lock(&mutex_);
    if (!Has(number)) return {};
    return entries_[SlotOf(number)].key;
  }

 private:
  struct Entry {
    std::uint64_t number = 0;
    bool used = false;
    ImportedKey key;
  };
  bool Has(std::uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::size_t slot = SlotOf(number);
    return slot < entries_.size() && entries_[slot].used && entries_[slot].number == number;
  }

  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::size_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::fabric::ucx
