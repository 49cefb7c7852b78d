// The counters of a process's open tables as Prometheus text (OPERATIONS, "Metrics"), for an engine
// that serves it beside its own metrics. Pure: it formats what it is given.
#pragma once

#include <span>
#include <string>

#include "client/read_counters.h"
#include "engram/ids.h"

namespace engram::client {

struct TableNumbers {
  std::string pool;   // the endpoints of its controllers
  std::string table;  // NAME@VERSION
  Epoch map_epoch;    // the newest that the pool has
  ReadTotals totals;
};

// Every series of every table, zeros too; each has the labels pool and table. Tables of one name in
// one pool are one series: the sum of both.
std::string MetricsText(std::span<const TableNumbers> tables);

}  // namespace engram::client
