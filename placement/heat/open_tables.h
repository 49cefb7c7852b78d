// Which client process holds which tables open, as the processes say it with their heat: what
// `get sessions` and `get aliases` show, and why a delete is refused. A process that was not heard
// for `forget_after` is gone. Nothing of it is stored: after a restart it fills again with the next
// reports. Bounded: kMostProcesses. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/mutex.h"

namespace engram::placement {

struct OpenedTable {
  TableUid table;
  std::string name, asked;  // NAME; the version or alias by which it was opened
  friend bool operator==(const OpenedTable&, const OpenedTable&) = default;
};

struct ClientProcess {
  std::string client, tenant;
  std::uint64_t process = 0;
  std::vector<OpenedTable> open;
  Instant last{};
};

class OpenTables {
 public:
  static constexpr std::size_t kMostProcesses = 16384;

  explicit OpenTables(Duration forget_after) : forget_after_(forget_after) {}

  // Replaces what the process said before; one that holds nothing is forgotten. False: too many
  // processes report.
  bool Take(Instant now, ClientProcess process);
  // By tenant, client and process.
  std::vector<ClientProcess> All(Instant now) const;
  // "client of tenant" of each process that holds the table.
  std::vector<std::string> Holders(Instant now, const TableUid& table) const;

 private:
  using Key = std::tuple<std::string, std::string, std::uint64_t>;

  const Duration forget_after_;
  mutable Mutex mutex_;
  std::map<Key, ClientProcess> processes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
