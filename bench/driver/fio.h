// The floor of the NVMe figures: what fio reads from the same files of the same file system.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace engram::bench {

// Random direct reads of 4 KiB a second over `files`, by io_uring, `depth` in flight, for
// `seconds`. Unavailable: fio is not installed, or what it said.
absl::StatusOr<double> FioReadsPerSecond(const std::vector<std::string>& files, std::uint32_t depth,
                                         double seconds);

}  // namespace engram::bench
