#include "client/rpc/pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rpc/pool_core.h"
#include "client/rpc/table_state.h"

namespace engram::client {
namespace {

absl::Status CheckDigest(const std::string& table, const char* which, const std::string& expected,
                         const std::string& found) {
  if (expected.empty() || expected == found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", table, " has the ", which, " digest ", found, ", not ", expected,
                   ": it is not the table that the caller was built for"));
}

absl::Status CheckRecord(const TableRecord& record, const OpenTableOptions& options) {
  const std::string name = record.name.Full();
  if (record.state != TableState::kReady)
    return absl::FailedPreconditionError(
        absl::StrCat("table ", name, " is ", std::string(Name(record.state)), ", not ready",
                     record.error.empty() ? "" : absl::StrCat(" (", record.error, ")"),
                     "; see `engramctl describe table ", name, "`"));
  if (absl::Status status =
          CheckDigest(name, "spec", options.expected_spec_digest, record.spec_digest);
      !status.ok())
    return status;
  return CheckDigest(name, "content", options.expected_content_digest, record.content_digest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pool>> Pool::Open(const PoolOptions& options) {
  auto core = PoolCore::Open(options);
  if (!core.ok()) return core.status();
  return std::unique_ptr<Pool>(new Pool(*std::move(core)));
}

Pool::Pool(std::shared_ptr<PoolCore> core) : core_(std::move(core)) {}
Pool::~Pool() = default;

absl::StatusOr<std::unique_ptr<Table>> Pool::OpenTable(const std::string& name,
                                                       const OpenTableOptions& options) {
  const Instant deadline = SystemClock::Get().Now() + options.open_timeout;
  auto parsed = TableName::Parse(name);
  if (!parsed.ok()) return parsed.status();
  auto record = core_->FetchTable(*parsed);
  if (!record.ok()) return record.status();
  if (absl::Status status = CheckRecord(*record, options); !status.ok()) return status;
  auto state = std::make_unique<Table::State>(core_, *std::move(record), *parsed);
  const AddressingSpec& addressing = state->record.spec.addressing;
  if (!addressing.token_map_digest.empty()) {
    auto map = core_->FetchTokenMap(addressing.token_map_digest);
    if (!map.ok()) return map.status();
    state->token_map = *std::move(map);
  }
  if (!addressing.function.empty()) {
    auto made = Addressing::Make(state->record.spec, state->token_map);
    if (!made.ok()) return made.status();
    state->addressing = *std::move(made);
  }
  core_->AddTable(state->record.uid, state->read_table->layout.shards(), &state->board,
                  [raw = state.get()](const ShardMap& map) {
                    raw->moved.Set(raw->PendingIn(map).has_value());
                  });
  core_->heat().Add(state.get(), [raw = state.get()] { return raw->TakeHeat(); });
  if (absl::Status status = core_->AwaitRoutes(name, state->board, deadline); !status.ok())
    return status;
  return std::unique_ptr<Table>(new Table(std::move(state)));
}

std::shared_ptr<const ShardMap> Pool::map() const { return core_->map(); }
bool Pool::connected() const { return core_->connected(); }
std::vector<ReachedNode> Pool::Nodes() const { return core_->Nodes(); }

}  // namespace engram::client
