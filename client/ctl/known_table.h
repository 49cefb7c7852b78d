// A table of the pool as its readers need it: record and addressing, fetched from the controller.
// Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ctl/pool_stub.h"
#include "engram/addressing.h"
#include "engram/table_spec.h"

namespace engram::ctl {

// NotFound: no such table. FailedPrecondition: it is not Ready.
absl::StatusOr<TableRecord> FetchReadyTable(const PoolStub& pool, const TableName& name);
absl::StatusOr<std::unique_ptr<Addressing>> FetchAddressing(const PoolStub& pool,
                                                            const TableSpec& spec);

// The first `position` + 1 tokens; a negative position counts from the end (-1: all).
// UsageError names the position and the number of tokens.
absl::StatusOr<std::vector<std::int64_t>> UpTo(std::vector<std::int64_t> tokens,
                                               std::int64_t position);

// What addressing says of --tokens, less what only a program can do about it.
absl::Status TokensError(const absl::Status& status);

// UsageError names the layers that there are.
absl::Status CheckLayer(const TableRecord& table, std::uint32_t layer);

}  // namespace engram::ctl
