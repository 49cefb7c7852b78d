// `plan`: what would the planner move in the pool as it is, and why?
// `plan table NAME@VERSION ...`: would this table fit, and how would it be cut?
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
  std::uint32_t limit = 100;
  bool dry_run = false;
};

std::string GoalWord(v1::PlanGoal goal) {
  switch (goal) {
    case v1::PLAN_GOAL_REPLICATION: return "replication";
    case v1::PLAN_GOAL_DRAIN: return "drain";
    case v1::PLAN_GOAL_CAPACITY: return "capacity";
    case v1::PLAN_GOAL_FEW_NODES: return "few-nodes";
    case v1::PLAN_GOAL_LOAD: return "load";
    case v1::PLAN_GOAL_HOT_COPIES: return "hot-copies";
    case v1::PLAN_GOAL_SURPLUS: return "surplus";
    default: return "?";
  }
}

std::string LoadPercent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

void SaySummary(const v1::GetPlanResponse& plan, const Terminal& terminal) {
  terminal.err << absl::StrCat(
      plan.steps_total() == 0
          ? "nothing to move"
          : absl::StrCat(plan.steps_total(), " steps, ", RoundSize(plan.bytes_total())),
      plan.steps_later() == 0 ? "" : absl::StrCat(", ", plan.steps_later(), " more later"),
      "; highest load of a node now ", LoadPercent(plan.load_now()), ", after the plan ",
      LoadPercent(plan.load_after()), ", lower bound ", LoadPercent(plan.load_bound()), "\n");
  for (const std::string& unmet : plan.unmet()) terminal.err << "unmet: " << unmet << '\n';
}

// What the planner would do now. It is only shown, with and without --dry-run.
absl::Status PlanPool(const PlanOptions& options, const Invocation& invocation) {
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kWide, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  const auto pool = invocation.Pool(std::chrono::seconds(10));
  if (!pool.ok()) return pool.status();
  v1::GetPlanRequest request;
  request.set_limit(options.limit);
  const auto plan = pool->Plan(request);
  if (!plan.ok()) return plan.status();
  if (*format == Format::kJson || *format == Format::kYaml) {
    PrintDocument(invocation.terminal, *format, ToJson(*plan));
    return absl::OkStatus();
  }
  TextTable table({{"SHARD"}, {"FROM"}, {"TO"}, {"BYTES", true, true}, {"GOAL"}, {"REASON"}});
  for (const v1::PlanStep& step : plan->steps()) {
    table.Add({absl::StrCat(step.table_name(), "/", step.shard()),
               AtTier(step.from(), step.from_tier()), AtTier(step.to(), step.to_tier()),
               RoundSize(step.bytes()), GoalWord(step.goal()), step.reason()});
  }
  if (table.rows() > 0) table.Print(invocation.terminal.out, *format == Format::kWide);
  SaySummary(*plan, invocation.terminal);
  return absl::OkStatus();
}

// REQUIRES: the table's spec and options came from a controller, so they are valid.
std::string ShardsOf(const v1::Table& table) {
  const auto record = wire::FromWire(table);
  if (!record.ok()) return "";
  const ShardLayout layout(record->spec, record->options);
  return absl::StrCat(layout.shards(), ", at most ", FormatSize(record->options.shard_bytes),
                      " each");
}

absl::Status Plan(const PlanOptions& options, const Invocation& invocation) {
  if (options.noun.empty()) return PlanPool(options, invocation);
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
  fields.Add("Fits", table.error().empty() ? "yes" : "in part: " + table.error());
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
  app.OptionalWord("NOUN", &options->noun, "table; without it the plan of the pool");
  DeclareLoadOptions(app, &options->load, false);
  app.Number("--limit", &options->limit, "Steps to show (100)");
  app.Flag("--dry-run", &options->dry_run, "Nothing is moved with or without it");
  return [options](const Invocation& invocation) { return Plan(*options, invocation); };
}

}  // namespace engram::ctl
