#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

constexpr std::size_t kHoldersNamed = 3;

// Readers lose nothing they were promised, and yet: who deletes what is read should mean it.
absl::Status CheckUnheld(const Core& core, const TableEntry& table, const DeleteRequest& request) {
  if (request.force || !core.options.holders) return absl::OkStatus();
  std::vector<std::string> holders = core.options.holders(core.now, table.record.uid);
  if (holders.empty()) return absl::OkStatus();
  const std::size_t all = holders.size();
  holders.resize(std::min(all, kHoldersNamed));
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", table.record.name.Full(), " is open in ", all, all == 1 ? " client" : " clients",
      " (", absl::StrJoin(holders, ", "), all > kHoldersNamed ? ", ..." : "",
      "; `engramctl get sessions`): let them adopt another version or end, or delete it with "
      "--force"));
}

}  // namespace

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
  if (absl::Status held = CheckUnheld(core, *table, request); !held.ok()) return answer(held);
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
