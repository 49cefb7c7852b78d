// `budget tenant NAME ROWS`, `grant table NAME --tenant T`, `revoke client TENANT/NAME`,
// `revoke table NAME --tenant T`, `restore client TENANT/NAME`, `rollback alias NAME@ALIAS`.
#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

struct TenantWords {
  std::string noun, name, tenant, rows;
  bool dry_run = false;
};

// Says on stdout what was done, or on stderr what would be.
absl::Status Say(const Invocation& invocation, bool dry_run, const absl::Status& done,
                 const std::string& what) {
  if (!done.ok()) return done;
  if (dry_run) {
    invocation.terminal.err << "dry run: " << what << '\n';
  } else {
    invocation.terminal.out << what << '\n';
  }
  return absl::OkStatus();
}

// Nothing where no table, client, budget, grant or revocation names it.
absl::StatusOr<std::optional<v1::Tenant>> FindTenant(const PoolStub& pool,
                                                     const std::string& name) {
  const auto tenants = pool.Tenants();
  if (!tenants.ok()) return tenants.status();
  for (const v1::Tenant& tenant : tenants->tenants()) {
    if (tenant.name() == name) return tenant;
  }
  return std::optional<v1::Tenant>();
}

absl::Status Budget(const TenantWords& words, const Invocation& invocation) {
  if (const auto noun = ParseNoun(words.noun, {Noun::kTenant}); !noun.ok()) return noun.status();
  v1::SetTenantBudgetRequest request;
  std::uint64_t rows = 0;
  if (!absl::SimpleAtoi(words.rows, &rows)) {
    return UsageError(
        absl::StrCat("\"", words.rows, "\" is no number of rows a second; 0 takes the limit away"));
  }
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  *request.mutable_caller() = NewCaller();
  request.set_tenant(words.name);
  request.set_budget_rows_per_second(rows);
  request.set_dry_run(words.dry_run);
  if (const auto tenant = FindTenant(*pool, words.name); tenant.ok() && !tenant->has_value()) {
    invocation.terminal.err << "note: no table and no client of tenant " << words.name
                            << " is known yet; see `engramctl get tenants`\n";
  }
  return Say(invocation, words.dry_run, pool->SetTenantBudget(request).status(),
             absl::StrCat("tenant/", words.name,
                          rows == 0 ? std::string(" has no budget")
                                    : absl::StrCat(" may read ", rows, " rows a second")));
}

absl::Status GrantOrRevokeTable(const TenantWords& words, bool withdraw,
                                const Invocation& invocation) {
  if (words.tenant.empty()) return UsageError("whose it is to be is missing: --tenant NAME");
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  v1::GrantTableRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_tenant(words.tenant);
  request.set_table(words.name);
  request.set_withdraw(withdraw);
  request.set_dry_run(words.dry_run);
  return Say(invocation, words.dry_run, pool->GrantTable(request).status(),
             absl::StrCat("tenant/", words.tenant, withdraw ? " may not read " : " may read ",
                          words.name));
}

absl::StatusOr<v1::RevokeClientRequest> RevocationOf(const TenantWords& words, bool restore) {
  const std::size_t slash = words.name.find('/');
  if (slash == std::string::npos) {
    return UsageError(absl::StrCat("a client is TENANT/NAME, as its certificate says it; \"",
                                   words.name, "\" is not"));
  }
  v1::RevokeClientRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_tenant(words.name.substr(0, slash));
  request.set_client(words.name.substr(slash + 1));
  request.set_restore(restore);
  request.set_dry_run(words.dry_run);
  return request;
}

absl::Status RevokeClient(const TenantWords& words, const Invocation& invocation) {
  const auto request = RevocationOf(words, false);
  if (!request.ok()) return request.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const auto answer = pool->RevokeClient(*request);
  const auto credentials = invocation.Credentials();
  const bool proven = credentials.ok() && *credentials != nullptr;
  if (answer.ok() && !proven) {
    invocation.terminal.err << "WARNING: this pool has no TLS, so the names of clients are not "
                               "proven and nothing ends: the revocation is kept for when it has "
                               "certificates (docs/security.md)\n";
  }
  return Say(invocation, words.dry_run, answer.status(),
             absl::StrCat("client/", words.name, " revoked", proven ? ": its sessions end" : ""));
}

absl::Status RestoreClient(const TenantWords& words, const Invocation& invocation) {
  const auto request = RevocationOf(words, true);
  if (!request.ok()) return request.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const auto tenant = FindTenant(*pool, request->tenant());
  if (!tenant.ok()) return tenant.status();
  const bool revoked =
      tenant->has_value() && std::count((*tenant)->revoked_clients().begin(),
                                        (*tenant)->revoked_clients().end(), request->client()) > 0;
  return Say(invocation, words.dry_run, pool->RevokeClient(*request).status(),
             absl::StrCat("client/", words.name,
                          revoked ? " may come back" : " was not revoked: nothing changes"));
}

absl::Status Revoke(const TenantWords& words, const Invocation& invocation) {
  const auto noun = ParseNoun(words.noun, {Noun::kClient, Noun::kTable});
  if (!noun.ok()) return noun.status();
  return *noun == Noun::kTable ? GrantOrRevokeTable(words, true, invocation)
                               : RevokeClient(words, invocation);
}

absl::Status Rollback(const TenantWords& words, const Invocation& invocation) {
  if (const auto noun = ParseNoun(words.noun, {Noun::kAlias}); !noun.ok()) return noun.status();
  const auto alias = ParseAlias(words.name);
  if (!alias.ok()) return alias.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  v1::SetAliasRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(alias->name);
  request.set_alias(alias->version);
  request.set_rollback(true);
  request.set_dry_run(words.dry_run);
  const auto answer = pool->SetAlias(request);
  return Say(invocation, words.dry_run, answer.status(),
             answer.ok()
                 ? absl::StrCat("alias/", alias->Full(), " names ", FullName(answer->table()))
                 : std::string());
}

std::shared_ptr<TenantWords> Declare(Options app, const char* nouns, const char* name) {
  auto words = std::make_shared<TenantWords>();
  app.Word("NOUN", &words->noun, nouns);
  app.Word("NAME", &words->name, name);
  app.Flag("--dry-run", &words->dry_run, "Say what would be done, and do nothing");
  return words;
}

}  // namespace

Action DeclareBudget(Options app) {
  const auto words = Declare(app, "tenant", "The tenant");
  app.Word("ROWS", &words->rows, "Rows a second in the whole pool; 0: no limit");
  return [words](const Invocation& invocation) { return Budget(*words, invocation); };
}

Action DeclareGrant(Options app) {
  const auto words = Declare(app, "table", "NAME (every version) or NAME@VERSION");
  app.Text("--tenant", &words->tenant, "Whose clients may read it");
  return [words](const Invocation& invocation) {
    const auto noun = ParseNoun(words->noun, {Noun::kTable});
    return noun.ok() ? GrantOrRevokeTable(*words, false, invocation) : noun.status();
  };
}

Action DeclareRevoke(Options app) {
  const auto words = Declare(app, "client or table", "TENANT/NAME of a client; NAME of a table");
  app.Text("--tenant", &words->tenant, "Of a table: whose clients may not read it any more");
  return [words](const Invocation& invocation) { return Revoke(*words, invocation); };
}

Action DeclareRestore(Options app) {
  const auto words = Declare(app, "client", "TENANT/NAME, as its certificate says it");
  return [words](const Invocation& invocation) {
    const auto noun = ParseNoun(words->noun, {Noun::kClient});
    return noun.ok() ? RestoreClient(*words, invocation) : noun.status();
  };
}

Action DeclareRollback(Options app) {
  const auto words = Declare(app, "alias", "NAME@ALIAS");
  return [words](const Invocation& invocation) { return Rollback(*words, invocation); };
}

}  // namespace engram::ctl
