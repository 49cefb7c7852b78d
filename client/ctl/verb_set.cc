// `set alias NAME@ALIAS VERSION`.
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

struct SetOptions {
  std::string noun, name, version;
  bool dry_run = false;
};

// VERSION, or NAME@VERSION of the same name.
absl::StatusOr<std::string> VersionOf(const TableName& alias, const std::string& text) {
  const std::size_t at = text.find('@');
  const auto version = ParseTable(at == std::string::npos ? alias.name + "@" + text : text);
  if (!version.ok()) return version.status();
  if (version->name != alias.name)
    return UsageError(absl::StrCat("an alias names a version of its own table: ", alias.Full(),
                                   " cannot name ", version->Full()));
  return version->version;
}

absl::Status Set(const SetOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kAlias}); !noun.ok()) return noun.status();
  const auto alias = ParseAlias(options.name);
  if (!alias.ok()) return alias.status();
  const auto version = VersionOf(*alias, options.version);
  if (!version.ok()) return version.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  v1::SetAliasRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(alias->name);
  request.set_alias(alias->version);
  request.set_version(*version);
  request.set_dry_run(options.dry_run);
  const auto answer = pool->SetAlias(request);
  if (!answer.ok()) return answer.status();
  const std::string names =
      absl::StrCat("alias/", alias->Full(), " names ", FullName(answer->table()));
  if (options.dry_run) {
    invocation.terminal.err << "dry run: " << names << '\n';
  } else {
    invocation.terminal.out << names << '\n';
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareSet(Options app) {
  auto options = std::make_shared<SetOptions>();
  app.Word("NOUN", &options->noun, "alias");
  app.Word("NAME", &options->name, "NAME@ALIAS");
  app.Word("VERSION", &options->version, "The version that it is to name");
  app.Flag("--dry-run", &options->dry_run, "Say what would be done, and do nothing");
  return [options](const Invocation& invocation) { return Set(*options, invocation); };
}

}  // namespace engram::ctl
