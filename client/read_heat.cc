#include "client/read_heat.h"

#include <algorithm>
#include <thread>

#include "client/cache/row_cache.h"

namespace engram::client {

void ReadHeat::CountNgram(std::span<const RowId> rows) {
  if (rows.empty() || rows.size() > kMostRows) return;
  const std::uint64_t hash = HashOf(rows);
  auto& set = sets_[hash % kSets];
  Entry* least = &set[0];
  for (Entry& entry : set) {
    if (entry.reads > 0 && entry.hash == hash && entry.count == rows.size() &&
        std::equal(rows.begin(), rows.end(), entry.rows.begin())) {
      entry.reads += kSampleEvery;
      return;
    }
    if (entry.reads < least->reads) least = &entry;
  }
  least->error = least->reads;
  least->reads += kSampleEvery;
  least->hash = hash;
  least->count = static_cast<std::uint32_t>(rows.size());
  std::copy(rows.begin(), rows.end(), least->rows.begin());
}

void ReadHeat::Take(std::vector<std::uint64_t>* shards, std::vector<Ngram>* ngrams) {
  shards->resize(std::max(shards->size(), shards_.size()));
  taken_.resize(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::uint32_t count = shards_[i].load(std::memory_order_relaxed);
    (*shards)[i] += count - taken_[i];  // wraps as the counter does
    taken_[i] = count;
  }
  // The reader holds it for one request at a time.
  while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  for (auto& set : sets_) {
    for (Entry& entry : set) {
      if (entry.reads == 0) continue;
      ngrams->push_back(
          {{entry.rows.begin(), entry.rows.begin() + entry.count}, entry.reads, entry.error});
      entry = Entry{};
    }
  }
  busy_.clear(std::memory_order_release);
}

}  // namespace engram::client
