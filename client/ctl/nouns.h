// What the verbs act on. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/table_spec.h"

namespace engram::ctl {

enum class Noun { kTable, kShard, kReplica, kNode, kPlan, kAlias, kSession, kTenant, kClient };

// Takes singular and plural. UsageError suggests the nearest of `allowed`.
absl::StatusOr<Noun> ParseNoun(std::string_view word, const std::vector<Noun>& allowed);
std::string_view Name(Noun noun);

// NAME@VERSION. UsageError says what is wrong.
absl::StatusOr<TableName> ParseTable(std::string_view text);
// NAME@ALIAS; `version` holds the alias.
absl::StatusOr<TableName> ParseAlias(std::string_view text);

// NAME@VERSION/INDEX.
struct ShardName {
  TableName table;
  ShardIndex shard;
};
absl::StatusOr<ShardName> ParseShard(std::string_view text);

}  // namespace engram::ctl
