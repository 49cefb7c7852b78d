// `plan table NAME@VERSION ...`: would this table fit, and how would it be cut?
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/ctl/documents.h"
#include "client/ctl/listing.h"
#include "client/ctl/load_request.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"
#include "engram/shard_layout.h"
#include "proto/convert.h"

namespace engram::ctl {
namespace {

struct PlanOptions {
  std::string noun;
  LoadOptions load;
};

// REQUIRES: the table's spec and options came from a controller, so they are valid.
std::string ShardsOf(const v1::Table& table) {
  const auto record = wire::FromWire(table);
  if (!record.ok()) return "";
  const ShardLayout layout(record->spec, record->options);
  return absl::StrCat(layout.shards(), ", at most ", FormatSize(record->options.shard_bytes),
                      " each");
}

absl::Status Plan(const PlanOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  auto request = BuildLoadRequest(options.load);
  if (!request.ok()) return request.status();
  request->set_dry_run(true);
  const auto pool = invocation.Pool(std::chrono::minutes(2));
  if (!pool.ok()) return pool.status();
  const auto planned = pool->Load(*request);
  if (!planned.ok()) return planned.status();
  if (*format != Format::kTable) {
    PrintDocument(invocation.terminal, *format, ToJson(*planned));
    return absl::OkStatus();
  }
  const v1::Table& table = planned->table();
  const std::uint32_t copies = std::max<std::uint32_t>(1, table.options().replicas());
  FieldList fields;
  fields.Add("Table", FullName(table));
  fields.Add("Fits", "yes");
  fields.Add("Rows", HumanCount(RowsOf(table)));
  fields.Add("Shards", ShardsOf(table));
  fields.Add("Copies", absl::StrCat(copies));
  fields.Add("Memory", absl::StrCat(RoundSize(StoredBytes(table)), " a copy, ",
                                    RoundSize(StoredBytes(table) * copies), " in all"));
  fields.Print(invocation.terminal.out);
  return absl::OkStatus();
}

}  // namespace

Action DeclarePlan(Options app) {
  auto options = std::make_shared<PlanOptions>();
  app.Word("NOUN", &options->noun, "table");
  DeclareLoadOptions(app, &options->load);
  return [options](const Invocation& invocation) { return Plan(*options, invocation); };
}

}  // namespace engram::ctl
