// `cordon node NAME`, `uncordon node NAME`, `drain node NAME [--wait]`.
#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/ctl/listing.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/verbs.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

constexpr std::chrono::milliseconds kDrainLookEvery{50};
constexpr int kMovesPrinted = 20;

struct NodeVerbOptions {
  std::string noun, name;
  bool dry_run = false, wait = false;
};

absl::StatusOr<PoolStub> PoolFor(const NodeVerbOptions& options, const Invocation& invocation) {
  if (const auto noun = ParseNoun(options.noun, {Noun::kNode}); !noun.ok()) return noun.status();
  return invocation.Pool();
}

template <class Request>
Request RequestFor(const NodeVerbOptions& options) {
  Request request;
  *request.mutable_caller() = NewCaller();
  request.set_node(options.name);
  request.set_dry_run(options.dry_run);
  return request;
}

void SayDone(const NodeVerbOptions& options, const Terminal& terminal, const std::string& done) {
  if (options.dry_run) {
    terminal.err << "dry run: node/" << options.name << " would be " << done << '\n';
  } else {
    terminal.out << "node/" << options.name << ' ' << done << '\n';
  }
}

template <class Request, class Response>
absl::Status Set(const NodeVerbOptions& options, const Invocation& invocation, const char* done,
                 absl::StatusOr<Response> (PoolStub::*ask)(const Request&) const) {
  const auto pool = PoolFor(options, invocation);
  if (!pool.ok()) return pool.status();
  const auto answer = (*pool.*ask)(RequestFor<Request>(options));
  if (!answer.ok()) return answer.status();
  SayDone(options, invocation.terminal, done);
  return absl::OkStatus();
}

void PrintMoves(const v1::DrainNodeResponse& answer, const Terminal& terminal) {
  for (int i = 0; i < std::min(answer.moves_size(), kMovesPrinted); ++i) {
    const v1::Move& move = answer.moves(i);
    terminal.err << "  shard/" << move.table_name() << '/' << move.shard() << " ("
                 << RoundSize(move.bytes()) << ") to "
                 << (move.to().empty() ? "nowhere: another copy stays" : "node " + move.to())
                 << '\n';
  }
  const std::uint64_t shown =
      static_cast<std::uint64_t>(std::min(answer.moves_size(), kMovesPrinted));
  if (answer.moves_total() > shown) {
    terminal.err << "  and " << answer.moves_total() - shown << " more\n";
  }
}

absl::Status AwaitDrained(const PoolStub& pool, const std::string& name, Duration limit) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const auto nodes = pool.Nodes();
    if (!nodes.ok()) return nodes.status();
    for (const v1::Node& node : nodes->nodes()) {
      if (node.node() != name) continue;
      const std::string state = StateWord(node);
      if (state == "Drained" || state == "Stopped") return absl::OkStatus();
      if (std::chrono::steady_clock::now() - start >= limit) {
        return absl::DeadlineExceededError(absl::StrCat(
            "node ", name, " is ", state, " with ",
            node.replicas_serving() + node.replicas_loading() + node.replicas_draining(),
            " replicas after ", FormatDuration(limit), node.note().empty() ? "" : "; ",
            node.note()));
      }
    }
    std::this_thread::sleep_for(kDrainLookEvery);
  }
}

absl::Status Drain(const NodeVerbOptions& options, const Invocation& invocation) {
  const auto pool = PoolFor(options, invocation);
  if (!pool.ok()) return pool.status();
  const auto answer = pool->Drain(RequestFor<v1::DrainNodeRequest>(options));
  if (!answer.ok()) return answer.status();
  const Terminal& terminal = invocation.terminal;
  SayDone(options, terminal, options.dry_run ? "drained" : "draining");
  if (options.dry_run) {
    PrintMoves(*answer, terminal);
    return absl::OkStatus();
  }
  if (!options.wait) {
    terminal.err << "`engramctl get plans` shows how far it is; it is Drained in `engramctl get "
                    "nodes` when it is empty\n";
    return absl::OkStatus();
  }
  const auto limit = invocation.Timeout(std::chrono::minutes(10));
  if (!limit.ok()) return limit.status();
  if (absl::Status drained = AwaitDrained(*pool, options.name, *limit); !drained.ok()) {
    return drained;
  }
  terminal.out << "node/" << options.name << " drained\n";
  return absl::OkStatus();
}

std::shared_ptr<NodeVerbOptions> DeclareNodeVerb(Options app) {
  auto options = std::make_shared<NodeVerbOptions>();
  app.Word("NOUN", &options->noun, "node");
  app.Word("NAME", &options->name, "A node, as `engramctl get nodes` shows it");
  app.Flag("--dry-run", &options->dry_run, "Say what would be done, and do nothing");
  return options;
}

}  // namespace

Action DeclareCordon(Options app) {
  const auto options = DeclareNodeVerb(app);
  return [options](const Invocation& invocation) {
    return Set(*options, invocation, "cordoned", &PoolStub::Cordon);
  };
}

Action DeclareUncordon(Options app) {
  const auto options = DeclareNodeVerb(app);
  return [options](const Invocation& invocation) {
    return Set(*options, invocation, "uncordoned", &PoolStub::Uncordon);
  };
}

Action DeclareDrain(Options app) {
  const auto options = DeclareNodeVerb(app);
  app.Flag("--wait", &options->wait, "Return when the node is empty");
  return [options](const Invocation& invocation) { return Drain(*options, invocation); };
}

}  // namespace engram::ctl
