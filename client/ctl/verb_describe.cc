// `describe table NAME@VERSION | node NAME | shard NAME@VERSION/INDEX`.
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/ctl/documents.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"
#include "proto/convert.h"

namespace engram::ctl {
namespace {

struct DescribeOptions {
  std::string noun, name;
};

std::string SourceOf(const v1::Table& table) {
  if (table.source().has_checkpoint())
    return "checkpoint " + table.source().checkpoint().directory();
  return absl::StrCat("synthetic, seed ", table.source().synthetic().seed());
}

std::string PlanesOf(const v1::Table& table) {
  std::vector<std::string> planes;
  for (const auto& plane : table.spec().planes()) {
    planes.push_back(absl::StrCat(plane.name(), " ", plane.bytes(), " B ",
                                  absl::StripPrefix(v1::DType_Name(plane.dtype()), "D_TYPE_")));
  }
  return absl::StrJoin(planes, ", ");
}

std::string TiersOf(const v1::Table& table) {
  std::vector<std::string> tiers;
  for (const int tier : table.options().tiers()) {
    tiers.push_back(TierWord(static_cast<v1::Tier>(tier)));
  }
  return absl::StrJoin(tiers, ", ");
}

void PrintIdentity(const v1::GetTableResponse& answer, std::ostream& out) {
  const v1::Table& table = answer.table();
  FieldList fields;
  fields.Add("Name", FullName(table));
  fields.Add("State", StateWord(answer));
  const bool failed = table.state() == v1::TABLE_STATE_FAILED;
  if (!table.error().empty()) fields.Add(failed ? "Error" : "Note", table.error());
  if (const std::string missing = MissingCopies(answer); !missing.empty()) {
    fields.Add("Missing", missing);
  }
  fields.Add("UID", HexUid(table.uid()));
  fields.Add("Created", HumanTime(table.created_unix_ms()));
  fields.Add("Source", SourceOf(table));
  fields.Add("Shards",
             absl::StrCat(answer.shards_serving(), " of ", answer.shards_total(),
                          " served, at most ", FormatSize(table.options().shard_bytes()), " each"));
  fields.Add("Copies", absl::StrCat(table.options().replicas()));
  if (table.options().tiers_size() > 0) fields.Add("Tiers", TiersOf(table));
  fields.Add("Seal", table.options().seal() == v1::SEAL_KIND_CRC32C ? "crc32c" : "none");
  fields.Add("Rows", HumanCount(RowsOf(table)));
  fields.Add("Row", absl::StrCat(RowBytesOf(table), " B (", PlanesOf(table), ")"));
  fields.Add("Size", absl::StrCat(RoundSize(StoredBytes(table)), " a copy, seals included"));
  fields.Add("Spec digest", table.spec_digest());
  fields.Add("Content digest", table.content_digest());
  fields.Print(out);
}

void PrintAddressing(const v1::Table& table, std::ostream& out) {
  const v1::AddressingSpec& addressing = table.spec().addressing();
  out << "\nAddressing:\n";
  FieldList fields;
  fields.Add("  Function", addressing.function());
  fields.Add("  Layers", absl::StrJoin(addressing.layers(), ", "));
  fields.Add("  Orders, heads",
             absl::StrCat("2 to ", addressing.max_order(), ", ", addressing.heads(),
                          " heads: ", table.spec().columns_size(), " columns in all"));
  fields.Add("  Vocabulary",
             absl::StrCat(HumanCount(addressing.raw_vocab()), " tokens, ",
                          HumanCount(addressing.compressed_vocab()), " compressed"));
  fields.Add("  Pad token", absl::StrCat(addressing.pad_token()));
  for (int i = 0; i < addressing.multipliers_size() && i < addressing.layers_size(); ++i) {
    fields.Add(absl::StrCat("  Multipliers of ", addressing.layers(i)),
               absl::StrJoin(addressing.multipliers(i).values(), ", "));
  }
  fields.Print(out);
}

// What each tier of each node holds of the table.
void PrintShares(const Shards& shards, std::ostream& out) {
  struct Share {
    std::uint64_t serving = 0, other = 0, bytes = 0;
  };
  std::map<std::pair<std::string, v1::Tier>, Share> shares;
  std::uint64_t total = 0;
  for (const auto& shard : shards) {
    for (const auto& replica : shard.replicas()) {
      Share& share = shares[{replica.node(), replica.tier()}];
      (replica.state() == v1::REPLICA_STATE_SERVING ? share.serving : share.other) += 1;
      share.bytes += shard.stored_bytes();
      total += shard.stored_bytes();
    }
  }
  TextTable table({{"  NODE"},
                   {"TIER"},
                   {"SERVING", false, true},
                   {"OTHER", false, true},
                   {"SIZE", false, true},
                   {"SHARE", false, true}});
  for (const auto& [place, share] : shares) {
    table.Add({"  " + place.first, TierWord(place.second), absl::StrCat(share.serving),
               absl::StrCat(share.other), RoundSize(share.bytes),
               absl::StrFormat("%.1f %%", total == 0 ? 0.0 : 100.0 * share.bytes / total)});
  }
  out << "\nReplicas:\n";
  table.Print(out, false);
}

absl::Status DescribeTable(const PoolStub& pool, const std::string& name, Format format,
                           const Terminal& terminal) {
  const auto table = ParseTable(name);
  if (!table.ok()) return table.status();
  const auto answer = pool.Table(table->name, table->version);
  if (!answer.ok()) return answer.status();
  if (format != Format::kTable) {
    PrintDocument(terminal, format, ToJson(*answer));
    return absl::OkStatus();
  }
  const auto shards = pool.Shards(table->name, table->version);
  if (!shards.ok()) return shards.status();
  PrintIdentity(*answer, terminal.out);
  PrintAddressing(answer->table(), terminal.out);
  PrintShares(*shards, terminal.out);
  return absl::OkStatus();
}

void PrintNode(const v1::Node& node, const absl::StatusOr<v1::GetNodeStatusResponse>& status,
               std::ostream& out) {
  FieldList fields;
  fields.Add("Name", node.node());
  fields.Add("State", StateWord(node));
  if (status.ok() && !status->not_ready_reason().empty()) {
    fields.Add("Not ready", status->not_ready_reason());
  }
  fields.Add("Endpoint", node.endpoint());
  fields.Add("Incarnation", absl::StrCat(node.incarnation()));
  fields.Add("Failure domain", node.failure_domain());
  fields.Add("Version", node.version());
  fields.Add("Joined", HumanTime(node.joined_unix_ms()));
  fields.Add("Last seen", HumanTime(node.last_seen_unix_ms()));
  fields.Add("Replicas", absl::StrCat(node.replicas_serving(), " serving, ",
                                      node.replicas_loading(), " loading"));
  fields.Add("Sessions", absl::StrCat(node.sessions()));
  fields.Add("Retirements pending", absl::StrCat(node.retirements_pending()));
  for (const auto& tier : node.tiers()) {
    fields.Add(
        "Tier " + TierWord(tier.tier()),
        absl::StrCat(RoundSize(tier.allocated_bytes()), " of ", RoundSize(tier.capacity_bytes()),
                     " in use, ",
                     tier.read_bytes_per_second() == 0
                         ? std::string("read rate not known")
                         : RoundSize(tier.read_bytes_per_second()) + "/s of rows",
                     tier.trouble().empty() ? "" : ", takes nothing new: " + tier.trouble()));
  }
  fields.Print(out);
  if (!status.ok()) return;
  TextTable paths({{"  FABRIC"}, {"ONE-SIDED"}, {"OFFLOADED"}, {"ADDRESS"}});
  for (const auto& path : status->paths()) {
    paths.Add({"  " + FabricWord(path.fabric()), path.one_sided() ? "yes" : "no",
               path.offloaded() ? "yes" : "no", path.address()});
  }
  out << "\nPaths:\n";
  paths.Print(out, false);
}

absl::Status DescribeNode(const PoolStub& pool, const std::string& name, Format format,
                          const Terminal& terminal, const wire::CredentialsPtr& credentials) {
  const auto nodes = pool.Nodes();
  if (!nodes.ok()) return nodes.status();
  for (const v1::Node& node : nodes->nodes()) {
    if (node.node() != name) continue;
    if (format != Format::kTable) {
      PrintDocument(terminal, format, ToJson(node));
      return absl::OkStatus();
    }
    const auto status =
        NodeStatus(node.node(), node.endpoint(), std::chrono::seconds(2), credentials);
    PrintNode(node, status, terminal.out);
    if (!status.ok()) terminal.err << status.status().message() << '\n';
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("the pool at ", pool.endpoint(), " has no node ", name,
                                          "; see `engramctl get nodes`"));
}

absl::Status DescribeShard(const PoolStub& pool, const std::string& name, Format format,
                           const Terminal& terminal) {
  const auto wanted = ParseShard(name);
  if (!wanted.ok()) return wanted.status();
  const auto answer = pool.Table(wanted->table.name, wanted->table.version);
  if (!answer.ok()) return answer.status();
  const auto shards = pool.Shards(wanted->table.name, wanted->table.version);
  if (!shards.ok()) return shards.status();
  const auto nodes = pool.Nodes();
  if (!nodes.ok()) return nodes.status();
  std::set<std::string> alive;
  for (const v1::Node& node : nodes->nodes()) {
    if (node.alive()) alive.insert(node.node());
  }
  for (const auto& shard : *shards) {
    if (shard.shard() != wanted->shard.value()) continue;
    if (format != Format::kTable) {
      PrintDocument(terminal, format, ToJson(shard));
      return absl::OkStatus();
    }
    FieldList fields;
    fields.Add("Name", name);
    fields.Add("Table UID", HexUid(shard.table()));
    const int column = static_cast<int>(shard.column());
    if (column < answer->table().spec().columns_size()) {
      const auto& of = answer->table().spec().columns(column);
      fields.Add("Column", absl::StrCat(column, " (layer ", of.layer(), ", order ", of.order(),
                                        ", head ", of.head(), ")"));
    }
    fields.Add("Rows", absl::StrCat(shard.rows(), " from row ", shard.first_row()));
    fields.Add("Size", RoundSize(shard.stored_bytes()));
    for (const auto& replica : shard.replicas()) {
      fields.Add("Replica",
                 absl::StrCat(replica.node(), alive.contains(replica.node()) ? "" : " (dead)", ", ",
                              TierWord(replica.tier()), ", ", StateWord(replica.state())));
    }
    fields.Print(terminal.out);
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("table ", wanted->table.Full(), " has ", shards->size(),
                                          " shards, numbered from 0; there is no shard ",
                                          wanted->shard.value()));
}

absl::Status Describe(const DescribeOptions& options, const Invocation& invocation) {
  const auto noun = ParseNoun(options.noun, {Noun::kTable, Noun::kNode, Noun::kShard});
  if (!noun.ok()) return noun.status();
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  switch (*noun) {
    case Noun::kNode: {
      const auto credentials = invocation.Credentials();
      if (!credentials.ok()) return credentials.status();
      return DescribeNode(*pool, options.name, *format, invocation.terminal, *credentials);
    }
    case Noun::kShard: return DescribeShard(*pool, options.name, *format, invocation.terminal);
    default: return DescribeTable(*pool, options.name, *format, invocation.terminal);
  }
}

}  // namespace

Action DeclareDescribe(Options app) {
  auto options = std::make_shared<DescribeOptions>();
  app.Word("NOUN", &options->noun, "table, node or shard");
  app.Word("NAME", &options->name, "small@1, node-0, small@1/17");
  return [options](const Invocation& invocation) { return Describe(*options, invocation); };
}

}  // namespace engram::ctl
