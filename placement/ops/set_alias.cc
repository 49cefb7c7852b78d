#include <algorithm>

#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// The version that the alias is to name.
absl::StatusOr<const TableEntry*> TargetOf(const Core& core, const AliasRequest& request) {
  if (core.state().FindTable(request.alias) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat(
        request.alias.Full(), " is a table of its own; choose a word that no version has"));
  const TableName name{request.alias.name, request.version};
  const TableEntry* table = core.state().FindTable(name);
  if (table == nullptr)
    return absl::NotFoundError(absl::StrCat(
        "table ", name.Full(), " is unknown; `engramctl get tables` lists those there are"));
  if (table->record.state != TableState::kReady)
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", name.Full(), " is ", std::string(Name(table->record.state)),
        ", and an alias names a Ready one; `engramctl wait table ", name.Full(), " --for ready`"));
  return table;
}

StoredTable Without(const TableEntry& table, const std::string& alias) {
  StoredTable next = table;
  std::erase(next.record.aliases, alias);
  return next;
}

}  // namespace

// Both tables change at one epoch: readers of the map never see the alias twice, or nowhere.
void SetAlias(Core& core, CallId call, const AliasRequest& request) {
  const auto answer = [&](absl::StatusOr<TableRecord> table) {
    core.actions.push_back(Answer{call, std::move(table)});
  };
  const std::string& alias = request.alias.version;
  const TableEntry* before = core.state().FindAlias(request.alias);
  Change change;
  TableRecord result;
  if (request.version.empty()) {
    if (before == nullptr)
      return answer(absl::NotFoundError(absl::StrCat(request.alias.Full(), " is no alias")));
    change.tables.push_back(Without(*before, alias));
    result = before->record;
  } else {
    const absl::StatusOr<const TableEntry*> target = TargetOf(core, request);
    if (!target.ok()) return answer(target.status());
    if (*target == before) return answer(before->record);
    if (before != nullptr) change.tables.push_back(Without(*before, alias));
    StoredTable next = **target;
    next.record.aliases.push_back(alias);
    std::sort(next.record.aliases.begin(), next.record.aliases.end());
    result = next.record;
    change.tables.push_back(std::move(next));
  }
  if (request.dry_run) return answer(result);
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) return answer(stored);
  core.SayLine(absl::StrCat("alias ", request.alias.Full(),
                            request.version.empty() ? " is removed; it named " : " names ",
                            result.name.Full()));
  answer(result);
}

}  // namespace engram::placement
