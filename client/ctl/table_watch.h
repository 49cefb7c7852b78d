// Following a table until it is ready or gone, with progress on a terminal. Thread-compatible.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/ctl/pool_stub.h"
#include "client/ctl/terminal.h"
#include "engram/clock.h"
#include "engram/table_spec.h"

namespace engram::ctl {

enum class Condition { kReady, kDeleted };

// OK when the condition holds. NotFound: the table is unknown (kReady). Internal: it failed (says
// why). DeadlineExceeded: not within `limit`. A controller that is away for a while is waited for.
absl::Status AwaitTable(const PoolStub& pool, const TableName& table, Condition condition,
                        Duration limit, const Terminal& terminal);

}  // namespace engram::ctl
