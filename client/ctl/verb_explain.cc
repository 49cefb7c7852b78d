// `explain table NAME@VERSION --tokens ...`: ids -> compressed -> rolling -> rows -> shards ->
// the paths by which this host would read them, for the last token.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/documents.h"
#include "client/ctl/known_table.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/number_list.h"
#include "client/ctl/open_table.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"
#include "engram/clock.h"
#include "engram/shard_layout.h"

namespace engram::ctl {
namespace {

constexpr Duration kOtherNodes = std::chrono::seconds(5);

struct ExplainOptions {
  std::string noun, name, tokens, fabric;
  std::int64_t position = -1;
};

// One row that the last token reads.
struct RowPlace {
  Column column;
  RowId row;
  std::uint64_t row_of_layer = 0;
  ShardSlot slot;
  std::vector<client::RowRoute> paths;       // this client's, the preferred one first
  std::map<std::string, std::string> tiers;  // of its replicas, by node
};

struct Explanation {
  std::vector<std::int64_t> tokens;
  Addressing::Trace trace;
  std::vector<RowPlace> places;
  absl::Status readable;  // why there are no paths
};

absl::StatusOr<Explanation> Explain(const PoolStub& pool, const TableRecord& table,
                                    std::vector<std::int64_t> tokens) {
  const auto addressing = FetchAddressing(pool, table.spec);
  if (!addressing.ok()) return addressing.status();
  Explanation explanation;
  explanation.tokens = std::move(tokens);
  const TokenSpan span{explanation.tokens, {}, {}, {}};
  auto trace = (*addressing)->Explain(span);
  if (!trace.ok()) return TokensError(trace.status());
  explanation.trace = *std::move(trace);
  const std::size_t columns = (*addressing)->columns();
  std::vector<RowId> rows(explanation.tokens.size() * columns);
  if (auto status = (*addressing)->Rows(span, rows); !status.ok()) return status;

  const ShardLayout layout(table.spec, table.options);
  for (std::size_t column = 0; column < columns; ++column) {
    RowPlace place;
    place.column = table.spec.columns[column];
    place.row = rows[rows.size() - columns + column];
    place.row_of_layer = place.row.value() - table.spec.LayerFirstRow(place.column.layer);
    place.slot = layout.Locate(place.row);
    explanation.places.push_back(std::move(place));
  }
  return explanation;
}

// A table opens with the first nodes that have all of it; the others answer or fail a moment later.
void AwaitNodes(const client::Pool& pool) {
  const Clock& clock = SystemClock::Get();
  const Instant limit = clock.Now() + kOtherNodes;
  const auto settled = [](const client::ReachedNode& node) {
    return node.open || !node.last_error.ok();
  };
  while (clock.Now() < limit) {
    const std::vector<client::ReachedNode> nodes = pool.Nodes();
    if (std::all_of(nodes.begin(), nodes.end(), settled)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Opens the table as a replica on this host would; a pool that cannot be read now is explained
// without paths.
void AddPaths(const Invocation& invocation, const TableName& name, const std::string& fabric,
              Explanation& explanation) {
  const auto opened = OpenForReading(invocation, name, fabric);
  explanation.readable = opened.status();
  if (!opened.ok()) return;
  AwaitNodes(*opened->pool);
  for (RowPlace& place : explanation.places) place.paths = opened->table->RoutesOf(place.row);
}

// Which tier of its node a row would be read from, as the controller says; who may not ask it is
// told the paths alone.
absl::Status AddTiers(const PoolStub& pool, const TableName& name, Explanation& explanation) {
  const auto shards = pool.Shards(name.name, name.version);
  if (absl::IsPermissionDenied(shards.status())) return absl::OkStatus();
  if (!shards.ok()) return shards.status();
  std::map<std::uint32_t, const v1::ListShardsResponse::Shard*> by_index;
  for (const auto& shard : *shards) by_index[shard.shard()] = &shard;
  for (RowPlace& place : explanation.places) {
    const auto shard = by_index.find(place.slot.shard.value());
    if (shard == by_index.end()) continue;
    for (const auto& replica : shard->second->replicas()) {
      place.tiers[replica.node()] = TierWord(replica.tier());
    }
  }
  return absl::OkStatus();
}

std::string TierOf(const RowPlace& place, const client::RowRoute& path) {
  const auto tier = place.tiers.find(path.node.name);
  return tier == place.tiers.end() ? std::string() : tier->second;
}

// "node-1 dram mapped, else node-0 nvme stream".
std::string PathsText(const RowPlace& place) {
  std::vector<std::string> words;
  for (const client::RowRoute& path : place.paths) {
    const std::string tier = TierOf(place, path);
    words.push_back(absl::StrCat(path.node.name, tier.empty() ? "" : " ", tier, " ",
                                 std::string(Name(path.fabric))));
  }
  return words.empty() ? "none" : absl::StrJoin(words, ", else ");
}

void PrintText(const Explanation& explanation, std::ostream& out) {
  FieldList head;
  head.Add("Tokens", absl::StrJoin(explanation.tokens, " "));
  head.Add("Compressed", absl::StrJoin(explanation.trace.compressed, " "));
  head.Print(out);
  out << "\nRolling hashes at the last token:\n";
  TextTable rolling({{"  LAYER"}, {"ORDER"}, {"ROLLING", false, true}});
  for (const auto& step : explanation.trace.rolling) {
    rolling.Add(
        {absl::StrCat("  ", step.layer), absl::StrCat(step.order), absl::StrCat(step.value)});
  }
  rolling.Print(out, false);
  out << "\nRows of the last token:\n";
  TextTable rows({{"  LAYER"},
                  {"ORDER"},
                  {"HEAD"},
                  {"ROW", false, true},
                  {"ROW-OF-LAYER", false, true},
                  {"SHARD", false, true},
                  {"SLOT", false, true},
                  {"READ-FROM"}});
  for (const RowPlace& place : explanation.places) {
    rows.Add({absl::StrCat("  ", place.column.layer), absl::StrCat(place.column.order),
              absl::StrCat(place.column.head), absl::StrCat(place.row.value()),
              absl::StrCat(place.row_of_layer), absl::StrCat(place.slot.shard.value()),
              absl::StrCat(place.slot.slot), PathsText(place)});
  }
  rows.Print(out, false);
  if (!explanation.readable.ok()) {
    out << "\nThe table cannot be read from here now: "
        << std::string(explanation.readable.message()) << "\n";
  }
}

std::string AsJson(const TableRecord& table, const Explanation& explanation) {
  nlohmann::ordered_json json = {{"table", table.name.Full()},
                                 {"tokens", explanation.tokens},
                                 {"compressed", explanation.trace.compressed},
                                 {"rolling", nlohmann::ordered_json::array()},
                                 {"rows", nlohmann::ordered_json::array()}};
  if (!explanation.readable.ok()) {
    json["unreadable"] = std::string(explanation.readable.message());
  }
  for (const auto& step : explanation.trace.rolling) {
    json["rolling"].push_back(
        {{"layer", step.layer}, {"order", step.order}, {"value", absl::StrCat(step.value)}});
  }
  for (const RowPlace& place : explanation.places) {
    auto paths = nlohmann::ordered_json::array();
    for (const client::RowRoute& path : place.paths) {
      paths.push_back({{"node", path.node.name},
                       {"tier", TierOf(place, path)},
                       {"fabric", std::string(Name(path.fabric))}});
    }
    json["rows"].push_back({{"layer", place.column.layer},
                            {"order", place.column.order},
                            {"head", place.column.head},
                            {"row", absl::StrCat(place.row.value())},
                            {"rowOfLayer", absl::StrCat(place.row_of_layer)},
                            {"shard", place.slot.shard.value()},
                            {"slot", place.slot.slot},
                            {"readFrom", std::move(paths)}});
  }
  return json.dump();
}

absl::Status Run(const ExplainOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  const auto name = ParseTable(options.name);
  if (!name.ok()) return name.status();
  auto tokens = ParseTokens("--tokens", options.tokens);
  if (tokens.ok()) tokens = UpTo(*std::move(tokens), options.position);
  if (!tokens.ok()) return tokens.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const auto table = FetchReadyTable(*pool, *name);
  if (!table.ok()) return table.status();
  auto explanation = Explain(*pool, *table, *std::move(tokens));
  if (!explanation.ok()) return explanation.status();
  AddPaths(invocation, table->name, options.fabric, *explanation);
  if (absl::Status ok = AddTiers(*pool, table->name, *explanation); !ok.ok()) return ok;
  if (*format == Format::kTable) {
    PrintText(*explanation, invocation.terminal.out);
  } else {
    PrintDocument(invocation.terminal, *format, AsJson(*table, *explanation));
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareExplain(Options app) {
  auto options = std::make_shared<ExplainOptions>();
  app.Word("NOUN", &options->noun, "table");
  app.Word("NAME", &options->name, "NAME@VERSION");
  app.RequiredText("--tokens", &options->tokens, "Raw token ids, oldest first: 22898,19737,270");
  app.Text("--fabric", &options->fabric, "Paths over mapped, stream, ofi or ucx only (auto)");
  app.Number("--position", &options->position, "Explain this token; -1 is the last (-1)");
  return [options](const Invocation& invocation) { return Run(*options, invocation); };
}

}  // namespace engram::ctl
