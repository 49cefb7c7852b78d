// A table of the pool, opened for reading: the client library as engramctl uses it.
// Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/command_line.h"
#include "client/rpc/pool.h"
#include "engram/table_spec.h"

namespace engram::ctl {

// The pool outlives its table: members are destroyed from the last to the first.
struct OpenTable {
  std::unique_ptr<client::Pool> pool;
  std::unique_ptr<client::Table> table;
};

// `fabric` "" lets the client choose. UsageError: an unknown fabric.
absl::StatusOr<OpenTable> OpenForReading(const Invocation& invocation, const TableName& name,
                                         const std::string& fabric);

}  // namespace engram::ctl
