// The row cache of a table's prefetchers, and the file of its hot n-grams.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cache/host_cache.h"
#include "client/cache/hot_file.h"
#include "client/cache/private_cache.h"
#include "client/rpc/pool.h"
#include "client/rpc/table_state.h"

namespace engram::client {

absl::StatusOr<std::shared_ptr<RowCache>> Table::State::OpenPrivate(const PrefetcherOptions& wanted,
                                                                    std::uint32_t unit_rows) const {
  PrivateCache::Options cache;
  cache.bytes = wanted.cache_bytes;
  cache.row_bytes = read_table->layout.row_bytes();
  cache.unit_rows = unit_rows;
  auto opened = PrivateCache::Open(cache);
  if (!opened.ok()) return opened.status();
  return std::shared_ptr<RowCache>(*std::move(opened));
}

// Null: it is not to be had, and the process goes on without.
absl::StatusOr<std::shared_ptr<RowCache>> Table::State::OpenHost(const PrefetcherOptions& wanted,
                                                                 std::uint32_t unit_rows) const {
  HostCache::Options cache;
  cache.bytes = wanted.cache_bytes;
  cache.tenant = core->options().tenant;
  cache.table = record.uid;
  cache.sealed = record.options.seal != SealKind::kNone;
  cache.row_bytes = read_table->layout.row_bytes();
  cache.unit_rows = unit_rows;
  auto opened = HostCache::Open(cache);
  if (opened.ok()) return std::shared_ptr<RowCache>(*std::move(opened));
  if (!cache.sealed || absl::IsInvalidArgument(opened.status())) return opened.status();
  if (core->options().log)
    core->options().log(1, absl::StrCat(std::string(opened.status().message()),
                                        "; this process reads without a cache"));
  return std::shared_ptr<RowCache>();
}

absl::Status Table::State::OpenCache(const PrefetcherOptions& wanted, Prefetcher::Options* options,
                                     RowReader::Options* reader_options) const {
  if (wanted.cache_bytes == 0) {
    if (wanted.pinned_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("pinned_file is ", wanted.pinned_file,
                                                   ", but cache_bytes is 0: pinned n-grams need a "
                                                   "cache, give it some bytes"));
  }
  auto cache = wanted.host_cache ? OpenHost(wanted, options->ngram_rows)
                                 : OpenPrivate(wanted, options->ngram_rows);
  if (!cache.ok()) return cache.status();
  if (*cache == nullptr) return absl::OkStatus();
  reader_options->cache = *std::move(cache);
  ++reader_options->slots;  // for hints
  if (wanted.pinned_file.empty()) return absl::OkStatus();
  HotFileLimits limits;
  limits.spec_digest = record.spec_digest;
  limits.rows = read_table->layout.rows();
  limits.unit_rows = options->ngram_rows;
  auto pinned = ReadHotFile(wanted.pinned_file, limits);
  if (!pinned.ok()) return pinned.status();
  options->pinned = *std::move(pinned);
  return absl::OkStatus();
}

absl::Status Table::WriteHot(SharedPrefetcher& prefetcher, const std::string& path,
                             std::size_t most) const {
  if (!prefetcher.has_cache())
    return absl::FailedPreconditionError(
        "the prefetcher has no row cache, so it does not know what is hot: open it with "
        "cache_bytes above 0");
  return WriteHotFile(path, record().spec_digest, prefetcher.Hottest(most));
}

}  // namespace engram::client
