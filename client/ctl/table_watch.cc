#include "client/ctl/table_watch.h"

#include <chrono>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds kPoll{25};

std::string ProgressLine(const std::string& name, const v1::GetTableResponse& answer,
                         Duration elapsed) {
  const double done = answer.shards_total() == 0 ? 0
                                                 : static_cast<double>(answer.shards_serving()) /
                                                       static_cast<double>(answer.shards_total());
  const auto bytes = static_cast<std::uint64_t>(done * StoredBytes(answer.table()));
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const auto rate = static_cast<std::uint64_t>(seconds > 0 ? bytes / seconds : 0);
  return absl::StrCat(name, ": ", StateWord(answer), ", ", answer.shards_serving(), "/",
                      answer.shards_total(), " shards, ", RoundSize(bytes), ", ", RoundSize(rate),
                      "/s");
}

// Why a table that is loaded does not count as ready; else "".
std::string Degraded(const v1::GetTableResponse& answer) {
  if (answer.table().state() != v1::TABLE_STATE_READY) return "";
  return absl::StrCat(": ", answer.shards_total() - answer.shards_serving(), " of ",
                      answer.shards_total(),
                      " shards have no copy on a node that is alive, see `engramctl get nodes`");
}

// Nothing while it goes on; else how it ended.
std::optional<absl::Status> Verdict(const TableName& name, Condition condition,
                                    const absl::StatusOr<v1::GetTableResponse>& answer) {
  if (!answer.ok()) {
    if (condition == Condition::kDeleted && absl::IsNotFound(answer.status())) {
      return absl::OkStatus();
    }
    // The controller may be restarting; tables and waiting survive that.
    if (absl::IsUnavailable(answer.status())) return std::nullopt;
    return answer.status();
  }
  const v1::TableState state = answer->table().state();
  if (condition == Condition::kDeleted) return std::nullopt;
  if (state == v1::TABLE_STATE_READY) {
    if (answer->shards_serving() < answer->shards_total()) return std::nullopt;
    return absl::OkStatus();
  }
  if (state == v1::TABLE_STATE_FAILED) {
    return absl::InternalError(
        absl::StrCat("table ", name.Full(), " could not be loaded: ", answer->table().error(),
                     "; `engramctl delete table ", name.Full(), " --yes` clears it"));
  }
  if (state == v1::TABLE_STATE_DELETING) {
    return absl::FailedPreconditionError("table " + name.Full() + " is being deleted");
  }
  return std::nullopt;
}

}  // namespace

absl::Status AwaitTable(const PoolStub& pool, const TableName& table, Condition condition,
                        Duration limit, const Terminal& terminal) {
  const auto start = SteadyClock::now();
  Progress progress(terminal);
  absl::Status last = absl::OkStatus();
  std::string degraded;
  for (;;) {
    const auto answer = pool.Table(table.name, table.version);
    if (const auto verdict = Verdict(table, condition, answer)) return *verdict;
    last = answer.status();
    const Duration elapsed = SteadyClock::now() - start;
    if (answer.ok()) {
      progress.Show(ProgressLine(table.Full(), *answer, elapsed));
      degraded = Degraded(*answer);
    }
    if (elapsed >= limit) break;
    std::this_thread::sleep_for(kPoll);
  }
  if (!last.ok()) return last;
  return absl::DeadlineExceededError(absl::StrCat(
      "table ", table.Full(), " is not ", condition == Condition::kReady ? "ready" : "gone",
      " after ", FormatDuration(limit), degraded, "; it goes on: `engramctl get tables --watch`"));
}

}  // namespace engram::ctl
