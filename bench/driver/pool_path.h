// The product as a ReadPath: RowReader from row ids to packed rows in the caller's buffer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/driver/paths.h"
#include "client/rpc/pool.h"

namespace engram::bench {

// Reads `table` with up to `outstanding` batches of at most `max_rows` rows. `out` is where the
// batches land: registered once. The table must outlive the path.
absl::StatusOr<std::unique_ptr<ReadPath>> PoolPath(std::string name, const client::Table& table,
                                                   std::uint32_t max_rows,
                                                   std::uint32_t outstanding);

}  // namespace engram::bench
