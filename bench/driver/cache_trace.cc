#include "bench/driver/cache_trace.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/replay.h"

namespace engram::bench {
namespace {

absl::StatusOr<TokenMap> ReadTokenMap(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open token map ", path));
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  TokenMap map(bytes.size() / sizeof(std::int32_t));
  std::memcpy(map.data(), bytes.data(), map.size() * sizeof(std::int32_t));
  return map;
}

}  // namespace

absl::StatusOr<CacheTrace> CacheTrace::Open(const std::string& traces, const std::string& token_map,
                                            std::uint64_t base_rows) {
  auto map = ReadTokenMap(token_map);
  if (!map.ok()) return map.status();
  EngramGeometry geometry;  // DeepSeek-V4.1-Flash
  geometry.base_rows = base_rows;
  geometry.token_map_digest = Digest(*map);
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) return spec.status();
  auto addressing = Addressing::Make(*spec, *std::move(map));
  if (!addressing.ok()) return addressing.status();
  CacheTrace trace;
  trace.addressing_ = *std::move(addressing);
  for (const char* name : {"kjv", "sqlite3_c", "tang300"}) {
    auto bytes = ReadZstd(absl::StrCat(traces, "/tokens_", name, ".u32.zst"));
    if (!bytes.ok()) return bytes.status();
    TextTrace text{name, std::vector<std::int64_t>(bytes->size() / 4)};
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      std::uint32_t id;
      std::memcpy(&id, bytes->data() + 4 * i, 4);
      text.tokens[i] = id;
    }
    trace.texts_.push_back(std::move(text));
  }
  return trace;
}

void CacheTrace::Address(const TextTrace& text, std::size_t begin, std::size_t count) {
  const std::size_t before = std::min<std::size_t>(begin, addressing_->lookback());
  rows_.resize(count * addressing_->columns());
  const std::span<const std::int64_t> tokens(text.tokens);
  const absl::Status ok = addressing_->Rows(
      {tokens.subspan(begin, count), {}, tokens.subspan(begin - before, before), {}}, rows_);
  if (!ok.ok()) rows_.clear();  // only of a token outside the vocabulary: a trace has none
}

LruUnits::LruUnits(std::uint32_t capacity) : entries_(capacity + 1) {
  entries_[capacity].older = entries_[capacity].newer = capacity;
  index_.reserve(capacity);
}

void LruUnits::Unlink(std::uint32_t at) {
  entries_[entries_[at].older].newer = entries_[at].newer;
  entries_[entries_[at].newer].older = entries_[at].older;
}

void LruUnits::LinkNewest(std::uint32_t at) {
  const auto head = static_cast<std::uint32_t>(entries_.size() - 1);
  entries_[at].newer = head;
  entries_[at].older = entries_[head].older;
  entries_[entries_[head].older].newer = at;
  entries_[head].older = at;
}

bool LruUnits::Use(std::uint64_t hash) {
  const auto found = index_.find(hash);
  const bool hit = found != index_.end();
  std::uint32_t at = used_;
  if (hit) {
    at = found->second;
    Unlink(at);
  } else if (used_ + 1 < entries_.size()) {
    ++used_;
  } else {
    at = entries_.back().newer;  // the oldest
    Unlink(at);
    index_.erase(entries_[at].hash);
  }
  if (!hit) {
    entries_[at].hash = hash;
    index_[hash] = at;
  }
  LinkNewest(at);
  return hit;
}

CacheUser::CacheUser(client::RowCache& cache, client::CacheUse use)
    : cache_(cache),
      use_(use),
      rows_(std::size_t{kUnitRows} * kCacheRowBytes, std::byte{1}),
      out_(rows_.size()) {
  for (std::uint32_t i = 0; i < kUnitRows; ++i) {
    from_.push_back(&rows_[i * kCacheRowBytes]);
    to_.push_back(&out_[i * kCacheRowBytes]);
  }
}

bool CacheUser::Use(std::span<const RowId> unit) {
  client::CacheProbe probe{unit, to_.data(), client::HashOf(unit)};
  cache_.Read({&probe, 1}, use_);
  if (!probe.hit) cache_.Fill({unit, from_.data(), probe.hash}, use_);
  return probe.hit;
}

}  // namespace engram::bench
