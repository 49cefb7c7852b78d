// `get tables|shards|replicas|nodes|plans [NAME]`.
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/ctl/documents.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWatchEvery{500};

struct GetOptions {
  std::string noun, name;
  bool watch = false;
};

absl::StatusOr<Listing> FetchTables(const PoolStub& pool, const std::string& name) {
  if (!name.empty()) {
    if (const auto table = ParseTable(name); !table.ok()) return table.status();
  }
  const auto tables = pool.Tables();
  if (!tables.ok()) return tables.status();
  Listing listing = ListTables(*tables, name, NowUnixMs());
  if (!name.empty() && listing.names.empty()) {
    return absl::NotFoundError(absl::StrCat("the pool at ", pool.endpoint(), " has no table ", name,
                                            "; see `engramctl get tables`"));
  }
  return listing;
}

absl::StatusOr<Listing> FetchNodes(const PoolStub& pool, const std::string& name) {
  const auto nodes = pool.Nodes();
  if (!nodes.ok()) return nodes.status();
  Listing listing = ListNodes(*nodes, name, NowUnixMs());
  if (!name.empty() && listing.names.empty()) {
    return absl::NotFoundError(absl::StrCat("the pool at ", pool.endpoint(), " has no node ", name,
                                            "; see `engramctl get nodes`"));
  }
  return listing;
}

absl::StatusOr<Listing> FetchShards(const PoolStub& pool, Noun noun, const std::string& name) {
  TableName table;
  if (!name.empty()) {
    const auto parsed = ParseTable(name);
    if (!parsed.ok()) return parsed.status();
    table = *parsed;
  }
  const auto shards = pool.Shards(table.name, table.version);
  if (!shards.ok()) return shards.status();
  const auto tables = pool.Tables();
  if (!tables.ok()) return tables.status();
  return noun == Noun::kShard ? ListShards(*shards, *tables, NowUnixMs())
                              : ListReplicas(*shards, *tables, NowUnixMs());
}

absl::StatusOr<Listing> FetchAliases(const PoolStub& pool, const std::string& name) {
  const auto tables = pool.Tables();
  if (!tables.ok()) return tables.status();
  const auto sessions = pool.Sessions();
  if (!sessions.ok()) return sessions.status();
  return ListAliases(*tables, *sessions, name, NowUnixMs());
}

absl::StatusOr<Listing> Fetch(const PoolStub& pool, Noun noun, const std::string& name) {
  switch (noun) {
    case Noun::kTable: return FetchTables(pool, name);
    case Noun::kNode: return FetchNodes(pool, name);
    case Noun::kShard:
    case Noun::kReplica: return FetchShards(pool, noun, name);
    case Noun::kAlias: return FetchAliases(pool, name);
    case Noun::kSession: {
      const auto sessions = pool.Sessions();
      if (!sessions.ok()) return sessions.status();
      return ListSessions(*sessions, NowUnixMs());
    }
    case Noun::kTenant: {
      const auto tenants = pool.Tenants();
      if (!tenants.ok()) return tenants.status();
      return ListTenants(*tenants, name);
    }
    case Noun::kClient:
    case Noun::kPlan: break;
  }
  const auto moves = pool.Moves();
  if (!moves.ok()) return moves.status();
  return ListMoves(*moves, NowUnixMs());
}

void Print(const Terminal& terminal, Format format, Noun noun, const Listing& listing) {
  if (format == Format::kJson || format == Format::kYaml) {
    PrintDocument(terminal, format, listing.json);
  } else if (format == Format::kName) {
    for (const std::string& name : listing.names) terminal.out << name << '\n';
  } else if (listing.table.rows() == 0) {
    terminal.err << "no " << Name(noun) << "s\n";
  } else {
    listing.table.Print(terminal.out, format == Format::kWide);
  }
}

// Prints what changed, until --timeout (for ever without it) or an interrupt.
absl::Status Watch(const PoolStub& pool, Noun noun, const std::string& name, Format format,
                   Duration limit, const Terminal& terminal) {
  const auto start = std::chrono::steady_clock::now();
  std::set<std::string> seen;
  for (;;) {
    const auto listing = Fetch(pool, noun, name);
    if (!listing.ok()) return listing.status();
    if (format == Format::kTable || format == Format::kWide) {
      listing->table.PrintNew(terminal.out, format == Format::kWide, &seen);
    } else if (seen.insert(listing->json).second) {
      Print(terminal, format, noun, *listing);
    }
    terminal.out.flush();
    if (std::chrono::steady_clock::now() - start + kWatchEvery >= limit) return absl::OkStatus();
    std::this_thread::sleep_for(kWatchEvery);
  }
}

absl::Status Get(const GetOptions& options, const Invocation& invocation) {
  const auto noun =
      ParseNoun(options.noun, {Noun::kTable, Noun::kShard, Noun::kReplica, Noun::kNode, Noun::kPlan,
                               Noun::kAlias, Noun::kSession, Noun::kTenant});
  if (!noun.ok()) return noun.status();
  const auto format = ParseFormat(invocation.output, {Format::kTable, Format::kWide, Format::kJson,
                                                      Format::kYaml, Format::kName});
  if (!format.ok()) return format.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  if (options.watch) {
    const auto limit = invocation.Timeout(std::chrono::hours(24 * 365));
    if (!limit.ok()) return limit.status();
    return Watch(*pool, *noun, options.name, *format, *limit, invocation.terminal);
  }
  const auto listing = Fetch(*pool, *noun, options.name);
  if (!listing.ok()) return listing.status();
  Print(invocation.terminal, *format, *noun, *listing);
  return absl::OkStatus();
}

}  // namespace

Action DeclareGet(Options app) {
  auto options = std::make_shared<GetOptions>();
  app.Word("NOUN", &options->noun,
           "tables, shards, replicas, nodes, plans, aliases, sessions or tenants");
  app.OptionalWord("NAME", &options->name, "Only this one (shards and replicas: of this table)");
  app.Flag("-w,--watch", &options->watch, "Go on, printing what changes");
  return [options](const Invocation& invocation) { return Get(*options, invocation); };
}

}  // namespace engram::ctl
