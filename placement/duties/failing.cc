#include "absl/strings/str_cat.h"
#include "placement/duties/duties.h"

namespace engram::placement {

void FailTables(Core& core) {
  for (auto it = core.failures.begin(); it != core.failures.end();) {
    const TableEntry* table = core.state().FindTable(it->first);
    if (table != nullptr && table->record.state == TableState::kLoading) {
      StoredTable failed = *table;
      failed.record.state = TableState::kFailed;
      failed.record.error = it->second;
      Change change;
      change.tables.push_back(failed);
      // Kept for the next tick: a table whose load failed must never serve.
      if (!core.Commit(std::move(change)).ok()) return;
      core.SayLine(absl::StrCat("table ", failed.record.name.Full(), " is Failed: ", it->second));
      core.progress.erase(it->first);
    }
    it = core.failures.erase(it);
  }
}

}  // namespace engram::placement
