// `delete table NAME@VERSION --yes`, `delete alias NAME@ALIAS --yes`, `delete node NAME --yes`.
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/table_watch.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

struct DeleteOptions {
  std::string noun, name;
  bool yes = false, dry_run = false, wait = false, force = false;
};

std::string What(const v1::GetTableResponse& answer) {
  return absl::StrCat("table ", FullName(answer.table()), " (", StateWord(answer.table().state()),
                      ", ", answer.shards_total(), " shards, ",
                      RoundSize(StoredBytes(answer.table()) * answer.table().options().replicas()),
                      " in ", answer.table().options().replicas(), " copies)");
}

// What readers of the alias adopted stays open to them.
absl::Status DeleteAlias(const DeleteOptions& options, const TableName& alias, const PoolStub& pool,
                         const Terminal& terminal) {
  v1::SetAliasRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(alias.name);
  request.set_alias(alias.version);
  request.set_dry_run(options.dry_run || !options.yes);
  const auto answer = pool.SetAlias(request);
  if (!answer.ok()) return answer.status();
  const std::string what =
      absl::StrCat("alias ", alias.Full(), " of table ", FullName(answer->table()));
  if (options.dry_run) {
    terminal.err << "dry run: would delete " << what << '\n';
  } else if (!options.yes) {
    return UsageError(absl::StrCat("this would delete ", what, "; say so with --yes"));
  } else {
    terminal.out << "alias/" << alias.Full() << " deleted\n";
  }
  return absl::OkStatus();
}

// The pool forgets a node that is dead and empty.
absl::Status DeleteNode(const DeleteOptions& options, const PoolStub& pool,
                        const Terminal& terminal) {
  v1::DeleteNodeRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_node(options.name);
  request.set_dry_run(options.dry_run || !options.yes);
  const auto answer = pool.DeleteNode(request);
  if (!answer.ok()) return answer.status();
  if (options.dry_run) {
    terminal.err << "dry run: would delete node " << options.name << '\n';
  } else if (!options.yes) {
    return UsageError(absl::StrCat("this would delete node ", options.name, "; say so with --yes"));
  } else {
    terminal.out << "node/" << options.name << " deleted\n";
  }
  return absl::OkStatus();
}

absl::Status Delete(const DeleteOptions& options, const Invocation& invocation) {
  const auto noun = ParseNoun(options.noun, {Noun::kTable, Noun::kAlias, Noun::kNode});
  if (!noun.ok()) return noun.status();
  const auto pool = invocation.Pool();
  if (*noun == Noun::kNode) {
    return pool.ok() ? DeleteNode(options, *pool, invocation.terminal) : pool.status();
  }
  const auto table = *noun == Noun::kAlias ? ParseAlias(options.name) : ParseTable(options.name);
  if (!table.ok()) return table.status();
  if (!pool.ok()) return pool.status();
  if (*noun == Noun::kAlias) return DeleteAlias(options, *table, *pool, invocation.terminal);
  const auto answer = pool->Table(table->name, table->version);
  if (!answer.ok()) return answer.status();
  if (options.dry_run) {
    invocation.terminal.err << "dry run: would delete " << What(*answer) << '\n';
    return absl::OkStatus();
  }
  if (!options.yes) {
    return UsageError(absl::StrCat("this would delete ", What(*answer),
                                   "; say so with --yes, or look first with --dry-run"));
  }
  v1::DeleteTableRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(table->name);
  request.set_version(table->version);
  request.set_force(options.force);
  const auto deleted = pool->Delete(request);
  if (!deleted.ok()) return deleted.status();
  if (options.wait) {
    const auto limit = invocation.Timeout(std::chrono::minutes(2));
    if (!limit.ok()) return limit.status();
    const absl::Status gone =
        AwaitTable(*pool, *table, Condition::kDeleted, *limit, invocation.terminal);
    if (!gone.ok()) return gone;
    invocation.terminal.out << "table/" << table->Full() << " deleted\n";
    return absl::OkStatus();
  }
  invocation.terminal.out << "table/" << table->Full() << " deleting\n";
  invocation.terminal.err
      << "its memory is freed when no reader needs it any more: `engramctl wait "
         "table "
      << table->Full() << " --for deleted`\n";
  return absl::OkStatus();
}

}  // namespace

Action DeclareDelete(Options app) {
  auto options = std::make_shared<DeleteOptions>();
  app.Word("NOUN", &options->noun, "table, alias or node");
  app.Word("NAME", &options->name, "NAME@VERSION, NAME@ALIAS, node-2");
  app.Flag("-y,--yes", &options->yes, "Really delete");
  app.Flag("--dry-run", &options->dry_run, "Say what would be deleted, and delete nothing");
  app.Flag("--force", &options->force, "Even while clients hold the table open");
  app.Flag("--wait", &options->wait, "Return when its memory is freed");
  return [options](const Invocation& invocation) { return Delete(*options, invocation); };
}

}  // namespace engram::ctl
