#include "client/ctl/nouns.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/outcome.h"
#include "client/ctl/words.h"

namespace engram::ctl {

std::string_view Name(Noun noun) {
  switch (noun) {
    case Noun::kTable: return "table";
    case Noun::kShard: return "shard";
    case Noun::kReplica: return "replica";
    case Noun::kNode: return "node";
    case Noun::kPlan: return "plan";
    case Noun::kAlias: return "alias";
    case Noun::kSession: return "session";
    case Noun::kTenant: return "tenant";
    case Noun::kClient: return "client";
  }
  return "table";
}

absl::StatusOr<Noun> ParseNoun(std::string_view word, const std::vector<Noun>& allowed) {
  std::vector<std::string> known;
  for (Noun noun : allowed) {
    const std::string name(Name(noun));
    const std::string plural = name + (noun == Noun::kAlias ? "es" : "s");
    if (word == name || word == plural) return noun;
    known.push_back(name);
    known.push_back(plural);
  }
  return UsageError(UnknownWord("noun", word, known));
}

absl::StatusOr<TableName> ParseTable(std::string_view text) {
  auto name = TableName::Parse(text);
  if (!name.ok()) return UsageError(std::string(name.status().message()));
  return name;
}

absl::StatusOr<TableName> ParseAlias(std::string_view text) {
  if (text.find('@') != std::string_view::npos) return ParseTable(text);
  return UsageError(absl::StrCat("an alias is NAME@ALIAS, for instance small@live; \"",
                                 absl::string_view(text.data(), text.size()), "\" is not"));
}

absl::StatusOr<ShardName> ParseShard(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  std::uint32_t index = 0;
  const std::string_view number = slash == std::string_view::npos ? "" : text.substr(slash + 1);
  if (!absl::SimpleAtoi(absl::string_view(number.data(), number.size()), &index)) {
    return UsageError(absl::StrCat("a shard is NAME@VERSION/INDEX, for instance small@1/17; \"",
                                   absl::string_view(text.data(), text.size()), "\" is not"));
  }
  const auto table = ParseTable(text.substr(0, slash));
  if (!table.ok()) return table.status();
  return ShardName{*table, ShardIndex(index)};
}

}  // namespace engram::ctl
