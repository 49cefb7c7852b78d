// `status`: the pool in a few lines.

#include "absl/strings/str_cat.h"
#include "client/ctl/documents.h"
#include "client/ctl/endpoint.h"
#include "client/ctl/listing.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

// Nodes that were drained before they ended: nothing is missing without them.
std::uint32_t Stopped(const v1::ListNodesResponse& nodes) {
  std::uint32_t stopped = 0;
  for (const v1::Node& node : nodes.nodes()) stopped += StateWord(node) == "Stopped" ? 1 : 0;
  return stopped;
}

// Whether it is the pool that `local up` made here.
bool IsLocalPool(const std::string& endpoint) {
  const auto context = ReadContext();
  return context.ok() && !context->data_dir.empty() && context->endpoint == endpoint;
}

absl::Status Status(const Invocation& invocation) {
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const auto info = pool->PoolInfo();
  if (!info.ok()) return info.status();
  if (*format != Format::kTable) {
    PrintDocument(invocation.terminal, *format, ToJson(*info));
    return absl::OkStatus();
  }
  const auto tables = pool->Tables();
  if (!tables.ok()) return tables.status();
  int served = 0, fewer = 0;
  bool well = true;
  for (const auto& entry : tables->tables()) {
    const bool all = entry.shards_serving() == entry.shards_total();
    const bool ready = entry.table().state() == v1::TABLE_STATE_READY;
    const bool missing = entry.copies_missing() > 0;
    served += ready && all ? 1 : 0;
    fewer += ready && all && missing ? 1 : 0;
    well = well && (!ready || (all && !missing));
  }
  // A client may not list the nodes: to it one that was drained and stopped counts as dead.
  const auto nodes = pool->Nodes();
  if (!nodes.ok() && !absl::IsPermissionDenied(nodes.status())) return nodes.status();
  const std::uint32_t stopped = nodes.ok() ? Stopped(*nodes) : 0;
  well = well && info->nodes_alive() + stopped >= info->nodes_total();
  FieldList fields;
  fields.Add("Endpoint", pool->endpoint());
  fields.Add("Version", info->version());
  fields.Add("Nodes",
             absl::StrCat(info->nodes_alive(), " of ", info->nodes_total(), " alive",
                          stopped == 0 ? "" : absl::StrCat(", ", stopped, " drained and stopped")));
  fields.Add(
      "Tables",
      absl::StrCat(served, " of ", tables->tables_size(), " fully served",
                   fewer == 0 ? "" : absl::StrCat(", ", fewer, " with fewer copies than wanted")));
  fields.Add("Map epoch", absl::StrCat(info->epoch()));
  fields.Add("Fencing token", absl::StrCat(info->fencing_token()));
  fields.Add("State store", info->state_store());
  fields.Print(invocation.terminal.out);
  if (well) return absl::OkStatus();
  invocation.terminal.err << "see `engramctl get nodes` and `engramctl get tables`"
                          << (IsLocalPool(pool->endpoint())
                                  ? "; on this machine `engramctl local up` repairs\n"
                                  : "\n");
  return AlreadyReported(absl::StatusCode::kInternal);
}

}  // namespace

Action DeclareStatus(Options) {
  return [](const Invocation& invocation) { return Status(invocation); };
}

}  // namespace engram::ctl
