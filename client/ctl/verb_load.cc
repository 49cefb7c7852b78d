// `load table NAME@VERSION --checkpoint DIR | --synthetic SPEC.json`.
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/load_request.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/table_watch.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

struct LoadWords {
  std::string noun;
  LoadOptions load;
  std::string tenant;
  bool wait = false, dry_run = false;
};

// Copies that have no place, of a table that is loaded without them.
void SayUnmet(const v1::Table& table, const Terminal& terminal) {
  if (!table.error().empty()) terminal.err << "note: " << table.error() << '\n';
}

absl::Status Load(const LoadWords& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  auto request = BuildLoadRequest(options.load);
  if (!request.ok()) return request.status();
  const auto limit = invocation.Timeout(std::chrono::hours(2));
  if (!limit.ok()) return limit.status();
  // A node reads the checkpoint's small files before the controller answers.
  const auto pool = invocation.Pool(std::chrono::minutes(2));
  if (!pool.ok()) return pool.status();
  request->set_dry_run(options.dry_run);
  request->mutable_caller()->set_tenant(options.tenant);
  const auto loading = pool->Load(*request);
  if (!loading.ok()) return loading.status();
  const Terminal& terminal = invocation.terminal;
  const std::string name = FullName(loading->table());
  if (options.dry_run) {
    terminal.err << "dry run: table " << name << " would be loaded";
    if (loading->table().spec().columns_size() > 0) {
      terminal.err << ", " << RoundSize(StoredBytes(loading->table())) << " a copy";
    }
    terminal.err << '\n';
    SayUnmet(loading->table(), terminal);
    return absl::OkStatus();
  }
  SayUnmet(loading->table(), terminal);
  if (!options.wait) {
    terminal.out << "table/" << name << " loading\n";
    terminal.err << "follow it with `engramctl wait table " << name << " --for ready`\n";
    return absl::OkStatus();
  }
  const TableName table{loading->table().name(), loading->table().version()};
  const absl::Status ready = AwaitTable(*pool, table, Condition::kReady, *limit, terminal);
  if (ready.ok()) terminal.out << "table/" << name << " ready\n";
  return ready;
}

}  // namespace

Action DeclareLoad(Options app) {
  auto options = std::make_shared<LoadWords>();
  app.Word("NOUN", &options->noun, "table");
  DeclareLoadOptions(app, &options->load);
  app.Text("--tenant", &options->tenant, "Whose table it is; default: that of clients without one");
  app.Flag("--wait", &options->wait, "Return when the table is ready, showing progress");
  app.Flag("--dry-run", &options->dry_run, "Let the controller check it, and load nothing");
  return [options](const Invocation& invocation) { return Load(*options, invocation); };
}

}  // namespace engram::ctl
