// What readers can have of an NVMe device, measured when a node starts: blocks of a file of some
// MiB, written for the moment, read at random through the node's own ring. Free function:
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "poolserver/nvme/disk.h"
#include "poolserver/nvme/ring.h"

namespace engram::poolserver::nvme {

// Bytes of rows a second, one block read for each row, as when none is cached.
absl::StatusOr<std::uint64_t> MeasureRowReads(Disk* disk, Ring* ring, const std::string& directory);

}  // namespace engram::poolserver::nvme
