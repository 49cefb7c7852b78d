// `move shard NAME@VERSION/INDEX --to NODE [--tier TIER]`.
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"
#include "engram/tier.h"
#include "proto/convert.h"

namespace engram::ctl {
namespace {

struct MoveOptions {
  std::string noun, name, from, to, tier;
  bool dry_run = false;
};

absl::Status Move(const MoveOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kShard}); !noun.ok()) return noun.status();
  const auto shard = ParseShard(options.name);
  if (!shard.ok()) return shard.status();
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  v1::MoveShardRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(shard->table.name);
  request.set_version(shard->table.version);
  request.set_shard(shard->shard.value());
  request.set_from(options.from);
  request.set_to(options.to);
  request.set_dry_run(options.dry_run);
  if (!options.tier.empty()) {
    const auto tier = ParseTier(options.tier);
    if (!tier.ok()) return UsageError(absl::StrCat("--tier: ", tier.status().message()));
    request.set_tier(wire::ToWire(*tier));
  }
  const auto answer = pool->Move(request);
  if (!answer.ok()) return answer.status();
  const v1::Move& move = answer->move();
  const std::string what = absl::StrCat(
      "shard/", move.table_name(), "/", move.shard(), " (", RoundSize(move.bytes()), ") from node ",
      AtTier(move.from(), move.from_tier()), " to node ", AtTier(move.to(), move.to_tier()));
  if (options.dry_run) {
    invocation.terminal.err << "dry run: would move " << what << '\n';
    return absl::OkStatus();
  }
  invocation.terminal.out << "moving " << what << '\n';
  invocation.terminal.err << "`engramctl get plans` shows how far it is\n";
  return absl::OkStatus();
}

}  // namespace

Action DeclareMove(Options app) {
  auto options = std::make_shared<MoveOptions>();
  app.Word("NOUN", &options->noun, "shard");
  app.Word("NAME", &options->name, "NAME@VERSION/INDEX");
  app.RequiredText("--to", &options->to, "The node that it is to be on");
  app.Text("--tier", &options->tier,
           "Where it is to lie there: dram, cxl or nvme (the fastest that has room)");
  app.Text("--from", &options->from, "Whose copy moves, where several nodes have one");
  app.Flag("--dry-run", &options->dry_run, "Say what would be done, and do nothing");
  return [options](const Invocation& invocation) { return Move(*options, invocation); };
}

}  // namespace engram::ctl
