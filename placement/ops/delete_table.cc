#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"

namespace engram::placement {

void DeleteTable(Core& core, CallId call, const DeleteRequest& request) {
  const auto answer = [&](absl::StatusOr<TableRecord> table) {
    core.actions.push_back(Answer{call, std::move(table)});
  };
  const std::string key = RequestKey(request.caller);
  const TableEntry* deleting = nullptr;
  for (const auto& [uid, table] : core.state().tables) {
    if (table->record.name != request.name) continue;
    if (table->record.state == TableState::kDeleting) deleting = table.get();
  }
  if (!key.empty()) {
    if (deleting != nullptr && deleting->delete_request == key) return answer(deleting->record);
    for (const auto& [number, gone] : core.state().deleted) {
      if (gone->delete_request == key && gone->record.name == request.name) {
        return answer(gone->record);
      }
    }
  }
  const TableEntry* table = core.state().FindTable(request.name);
  if (table == nullptr) {
    if (deleting != nullptr) return answer(deleting->record);
    return answer(absl::NotFoundError(
        absl::StrCat("table ", request.name.Full(),
                     " is unknown; `engramctl get tables` lists those there are")));
  }
  if (!table->record.aliases.empty()) {
    const std::string alias = request.name.name + "@" + table->record.aliases.front();
    return answer(absl::FailedPreconditionError(absl::StrCat(
        "table ", request.name.Full(), " is what ", alias, " names; let the alias name another ",
        "version first (`engramctl set alias ", alias, " VERSION`), or remove it (`engramctl ",
        "delete alias ", alias, "`)")));
  }
  StoredTable next = *table;
  next.record.state = TableState::kDeleting;
  next.delete_request = key;
  if (request.dry_run) return answer(next.record);
  Change change;
  change.tables.push_back(next);
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) return answer(stored);
  core.SayLine(absl::StrCat("table ", next.record.name.Full(), " is Deleting"));
  core.progress.erase(next.record.uid);
  answer(next.record);
}

}  // namespace engram::placement
