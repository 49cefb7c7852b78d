#include "client/ctl/known_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/outcome.h"
#include "proto/convert.h"

namespace engram::ctl {

absl::StatusOr<TableRecord> FetchReadyTable(const PoolStub& pool, const TableName& name) {
  const auto answer = pool.Table(name.name, name.version);
  if (!answer.ok()) return answer.status();
  auto record = wire::FromWire(answer->table());
  if (!record.ok()) return record;
  if (record->state == TableState::kReady) return record;
  const std::string why = record->error.empty() ? "" : " (" + record->error + ")";
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", name.Full(), " is ", std::string(Name(record->state)), why,
      ", not Ready; wait for it with `engramctl wait table ", name.Full(), " --for ready`"));
}

absl::StatusOr<std::unique_ptr<Addressing>> FetchAddressing(const PoolStub& pool,
                                                            const TableSpec& spec) {
  const auto bytes = pool.TokenMap(spec.addressing.token_map_digest);
  if (!bytes.ok()) return bytes.status();
  auto map = wire::TokenMapFromWire(*bytes);
  if (!map.ok()) return map.status();
  return Addressing::Make(spec, *std::move(map));
}

absl::StatusOr<std::vector<std::int64_t>> UpTo(std::vector<std::int64_t> tokens,
                                               std::int64_t position) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t at = position < 0 ? count + position : position;
  if (at < 0 || at >= count) {
    return UsageError(absl::StrCat("--position is ", position, ", but there are ", count,
                                   " tokens: positions go from 0 to ", count - 1,
                                   ", or from -1 (the last) to ", -count));
  }
  tokens.resize(static_cast<std::size_t>(at) + 1);
  return tokens;
}

absl::Status TokensError(const absl::Status& status) {
  return UsageError(absl::StrCat(
      "--tokens: ", absl::StrReplaceAll(status.message(), {{", or mark the token dead", ""}})));
}

absl::Status CheckLayer(const TableRecord& table, std::uint32_t layer) {
  const auto& layers = table.spec.addressing.layers;
  if (std::find(layers.begin(), layers.end(), layer) != layers.end()) return absl::OkStatus();
  return UsageError(absl::StrCat("--layer is ", layer, "; table ", table.name.Full(),
                                 " has layers ", absl::StrJoin(layers, ", ")));
}

}  // namespace engram::ctl
