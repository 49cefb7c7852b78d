// The file of hot n-grams that engram_dump_hot writes and a prefetcher reads at its start. Text,
// one n-gram a line:
//
//   engram-hot 1 SPEC_DIGEST
//   HITS ROW ROW ...
//
// Rows are of the whole table; they mean the same for every table of the same spec, whatever its
// version. Pure functions and files: Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cache/row_cache.h"

namespace engram::client {

struct HotFileLimits {
  std::string spec_digest;          // of the table
  std::uint64_t rows = 0;           // of the table
  std::uint32_t unit_rows = 1;      // of one n-gram, at most
  std::size_t ngrams = 10'000'000;  // those after so many are not read
};

std::string HotText(const std::string& spec_digest, std::span<const HotNgram> ngrams);
// InvalidArgument names the line and what is wrong with it; FailedPrecondition: another spec.
absl::StatusOr<std::vector<HotNgram>> ParseHotText(const std::string& text,
                                                   const HotFileLimits& limits);

// The file is there whole or not at all. PermissionDenied, NotFound, ... name the file.
absl::Status WriteHotFile(const std::string& path, const std::string& spec_digest,
                          std::span<const HotNgram> ngrams);
absl::StatusOr<std::vector<HotNgram>> ReadHotFile(const std::string& path,
                                                  const HotFileLimits& limits);

}  // namespace engram::client
