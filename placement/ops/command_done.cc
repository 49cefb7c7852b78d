#include "absl/strings/str_cat.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

// The node will not do it now: tell it again later, or give the table up when it never will.
void LoadRefused(Core& core, const SentCommand& sent, const absl::Status& why) {
  const TableEntry* table = core.state().FindTable(sent.table);
  const bool for_good = absl::IsInvalidArgument(why) || absl::IsUnimplemented(why);
  if (table != nullptr && table->record.state == TableState::kLoading && for_good) {
    core.failures.try_emplace(sent.table,
                              absl::StrCat("node ", sent.node.name, ": ", why.message()));
    core.changed = true;
  }
  for (ShardIndex shard : sent.shards) {
    if (for_good) ++core.failed_loads[{sent.node, {sent.table, shard}}];
    if (core.state().moves.contains({sent.table, shard})) {
      core.move_notes[{sent.table, shard}] = std::string(why.message());
    }
    core.not_before[{sent.node, {sent.table, shard}}] = core.now + core.options.retry_after;
    core.contacts[sent.node].loads_sent[sent.table].erase(shard);
    core.contacts[sent.node].tier_moves_sent[sent.table].erase(shard);
  }
}

// A node refuses to load what it is retiring. So what it was told to retire before that is gone,
// even when the news of it was overtaken by that of the load.
void LoadAccepted(Core& core, const SentCommand& sent, std::uint64_t command) {
  auto& unwanted = core.contacts[sent.node].unwanted;
  for (ShardIndex shard : sent.shards) {
    const auto told = unwanted.find({sent.table, shard});
    if (told != unwanted.end() && told->second < command) unwanted.erase(told);
  }
}

}  // namespace

void CommandAnswered(Core& core, LinkId link, const CommandDone& done) {
  const auto bound = core.links.find(link);
  const auto it = core.commands.find(done.command);
  if (bound == core.links.end() || it == core.commands.end() ||
      it->second.node != bound->second.node) {
    return;
  }
  const SentCommand sent = std::move(it->second);
  core.commands.erase(it);
  if (sent.kind == SentCommand::Kind::kInspect) {
    for (std::size_t i = 0; i < core.inspections.size(); ++i) {
      if (core.inspections[i].command != done.command) continue;
      if (done.status.ok() && done.inspection.size() == 1) {
        return InspectionEnded(core, i, done.inspection.front());
      }
      return InspectionEnded(
          core, i,
          done.status.ok()
              ? absl::InternalError(absl::StrCat("node ", sent.node.name, " answered nothing"))
              : absl::Status(done.status.code(),
                             absl::StrCat("node ", sent.node.name, ": ", done.status.message())));
    }
    return;
  }
  if (done.status.ok()) {
    if (sent.kind == SentCommand::Kind::kLoad) LoadAccepted(core, sent, done.command);
    return;
  }
  core.SayLine(
      absl::StrCat("node ", sent.node.name, " refused a command: ", done.status.message()));
  if (sent.kind == SentCommand::Kind::kLoad) return LoadRefused(core, sent, done.status);
  for (ShardIndex shard : sent.shards) {
    core.contacts[sent.node].retires_sent[sent.table].erase(shard);
  }
}

}  // namespace engram::placement
