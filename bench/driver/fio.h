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

// Bytes a second of direct I/O in pieces of 1 MiB, four in flight, from one end of a file to the
// other: of `file`, made with `bytes` by the first call. Unavailable as above.
enum class Sequential { kRead, kWrite };
absl::StatusOr<double> FioBytesPerSecond(const std::string& file, std::uint64_t bytes,
                                         Sequential what);

}  // namespace engram::bench
