// Comma-separated whole numbers of the command line. Pure: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace engram::ctl {

// UsageError names `option`, the entry and its place. Every number of the type is taken.
absl::StatusOr<std::vector<std::int64_t>> ParseTokens(const std::string& option,
                                                      const std::string& text);
absl::StatusOr<std::vector<std::uint64_t>> ParseRows(const std::string& option,
                                                     const std::string& text);

}  // namespace engram::ctl
