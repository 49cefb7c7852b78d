// `status`: the pool in a few lines.

#include "absl/strings/str_cat.h"
#include "client/ctl/documents.h"
#include "client/ctl/listing.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

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
  int ready = 0;
  for (const auto& entry : tables->tables()) {
    ready += entry.table().state() == v1::TABLE_STATE_READY ? 1 : 0;
  }
  FieldList fields;
  fields.Add("Endpoint", pool->endpoint());
  fields.Add("Version", info->version());
  fields.Add("Nodes", absl::StrCat(info->nodes_alive(), " of ", info->nodes_total(), " alive"));
  fields.Add("Tables", absl::StrCat(ready, " of ", tables->tables_size(), " ready"));
  fields.Add("Map epoch", absl::StrCat(info->epoch()));
  fields.Add("Fencing token", absl::StrCat(info->fencing_token()));
  fields.Add("State store", info->state_store());
  fields.Print(invocation.terminal.out);
  if (info->nodes_alive() == info->nodes_total()) return absl::OkStatus();
  invocation.terminal.err
      << "see `engramctl get nodes`; on this machine `engramctl local up` repairs\n";
  return AlreadyReported(absl::StatusCode::kInternal);
}

}  // namespace

Action DeclareStatus(Options) {
  return [](const Invocation& invocation) { return Status(invocation); };
}

}  // namespace engram::ctl
