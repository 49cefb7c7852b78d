// What the row caches are measured with: the n-grams of real text with the addresses of
// DeepSeek-V4.1-Flash, six units of eight rows a token, and the least recently used cache that they
// are compared with. No pool is needed. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cache/row_cache.h"
#include "engram/addressing.h"

namespace engram::bench {

inline constexpr std::uint32_t kUnitRows = 8, kUnitsPerToken = 6, kCacheRowBytes = 264;

struct TextTrace {
  std::string name;
  std::vector<std::int64_t> tokens;
};

class CacheTrace {
 public:
  // The traces kjv, sqlite3_c and tang300, and the token map; columns of `base_rows` rows and more.
  // NotFound, DataLoss name the file.
  static absl::StatusOr<CacheTrace> Open(const std::string& traces, const std::string& token_map,
                                         std::uint64_t base_rows = 16'000'000);

  std::span<const TextTrace> texts() const { return texts_; }
  const Addressing& addressing() const { return *addressing_; }

  // use(std::span<const RowId> unit) for every unit of the tokens [begin, begin + count), in order.
  template <class Use>
  void ForEachUnit(const TextTrace& text, std::size_t begin, std::size_t count, Use use) {
    for (std::size_t at = begin; at < begin + count; at += kChunk) {
      Address(text, at, std::min(kChunk, begin + count - at));
      for (std::size_t i = 0; i < rows_.size(); i += kUnitRows)
        use(std::span<const RowId>(rows_.data() + i, kUnitRows));
    }
  }

 private:
  static constexpr std::size_t kChunk = 1024;
  void Address(const TextTrace& text, std::size_t begin, std::size_t count);

  std::vector<TextTrace> texts_;
  std::unique_ptr<Addressing> addressing_;
  std::vector<RowId> rows_;
};

// Keeps the units that were used last, by their hashes.
class LruUnits {
 public:
  explicit LruUnits(std::uint32_t capacity);
  // True: it was there.
  bool Use(std::uint64_t hash);

 private:
  struct Entry {
    std::uint64_t hash;
    std::uint32_t older, newer;
  };
  void Unlink(std::uint32_t at);
  void LinkNewest(std::uint32_t at);

  std::vector<Entry> entries_;  // the last is the ring's head
  std::unordered_map<std::uint64_t, std::uint32_t> index_;
  std::uint32_t used_ = 0;
};

// Looks a unit up in a cache and, on a miss, gives it rows; as a reader does. True: a hit.
class CacheUser {
 public:
  CacheUser(client::RowCache& cache, client::CacheUse use);
  bool Use(std::span<const RowId> unit);

 private:
  client::RowCache& cache_;
  const client::CacheUse use_;
  std::vector<std::byte> rows_, out_;
  std::vector<const std::byte*> from_;
  std::vector<std::byte*> to_;
};

}  // namespace engram::bench
