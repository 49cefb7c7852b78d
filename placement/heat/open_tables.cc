#include "placement/heat/open_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::placement {

bool OpenTables::Take(Instant now, ClientProcess process) {
  process.last = now;
  Key key(process.tenant, process.client, process.process);
  MutexLock lock(&mutex_);
  std::erase_if(processes_,
                [&](const auto& entry) { return now - entry.second.last > forget_after_; });
  if (process.open.empty()) {
    processes_.erase(key);
    return true;
  }
  if (processes_.size() >= kMostProcesses && !processes_.contains(key)) return false;
  processes_[std::move(key)] = std::move(process);
  return true;
}

std::vector<ClientProcess> OpenTables::All(Instant now) const {
  std::vector<ClientProcess> out;
  MutexLock lock(&mutex_);
  for (const auto& [key, process] : processes_) {
    if (now - process.last <= forget_after_) out.push_back(process);
  }
  return out;
}

std::vector<std::string> OpenTables::Holders(Instant now, const TableUid& table) const {
  std::vector<std::string> out;
  for (const ClientProcess& process : All(now)) {
    const bool holds = std::any_of(process.open.begin(), process.open.end(),
                                   [&](const OpenedTable& one) { return one.table == table; });
    if (holds) out.push_back(absl::StrCat(process.client, " of ", process.tenant));
  }
  return out;
}

}  // namespace engram::placement
