// `wait table NAME@VERSION --for ready|deleted`.
#include <memory>

#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/table_watch.h"
#include "client/ctl/verbs.h"
#include "client/ctl/words.h"

namespace engram::ctl {
namespace {

struct WaitOptions {
  std::string noun, name, condition = "ready";
};

absl::Status Wait(const WaitOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  const auto table = ParseTable(options.name);
  if (!table.ok()) return table.status();
  const std::vector<std::string> known{"ready", "deleted"};
  if (options.condition != "ready" && options.condition != "deleted") {
    return UsageError("--for: " + UnknownWord("condition", options.condition, known));
  }
  const auto limit = invocation.Timeout(std::chrono::minutes(10));
  if (!limit.ok()) return limit.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const Condition condition =
      options.condition == "ready" ? Condition::kReady : Condition::kDeleted;
  const absl::Status status = AwaitTable(*pool, *table, condition, *limit, invocation.terminal);
  if (status.ok())
    invocation.terminal.out << "table/" << table->Full() << ' ' << options.condition << '\n';
  return status;
}

}  // namespace

Action DeclareWait(Options app) {
  auto options = std::make_shared<WaitOptions>();
  app.Word("NOUN", &options->noun, "table");
  app.Word("NAME", &options->name, "NAME@VERSION");
  app.Text("--for", &options->condition, "ready or deleted (ready)");
  return [options](const Invocation& invocation) { return Wait(*options, invocation); };
}

}  // namespace engram::ctl
