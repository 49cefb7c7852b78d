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
  const std::string& word = request.alias.version;
  if (word.find_first_not_of("0123456789") == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(
        request.alias.Full(),
        " reads like a version, and a later version could not have that name; choose a word"));
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
  next.alias_before.erase(alias);
  return next;
}

}  // namespace

// What the alias named before; a request as if it had said so.
absl::StatusOr<AliasRequest> Backwards(const TableEntry* now, AliasRequest request) {
  if (!request.rollback) return request;
  if (now == nullptr)
    return absl::NotFoundError(absl::StrCat(request.alias.Full(), " is no alias"));
  const auto before = now->alias_before.find(request.alias.version);
  if (before == now->alias_before.end())
    return absl::FailedPreconditionError(absl::StrCat("alias ", request.alias.Full(),
                                                      " has named nothing but ",
                                                      now->record.name.Full(), "; name a version"));
  request.version = before->second;
  return request;
}

// Both tables change at one epoch: readers of the map never see the alias twice, or nowhere.
void SetAlias(Core& core, CallId call, const AliasRequest& asked) {
  const auto answer = [&](absl::StatusOr<TableRecord> table) {
    core.actions.push_back(Answer{call, std::move(table)});
  };
  const TableEntry* before = core.state().FindAlias(asked.alias);
  const absl::StatusOr<AliasRequest> resolved = Backwards(before, asked);
  if (!resolved.ok()) return answer(resolved.status());
  const AliasRequest& request = *resolved;
  const std::string& alias = request.alias.version;
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
    if (before != nullptr) next.alias_before[alias] = before->record.name.version;
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
