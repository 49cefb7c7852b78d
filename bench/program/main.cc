// engram-bench: what the pool costs, against floors measured in the same run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "bench/driver/commands.h"

namespace {

using engram::bench::BenchOptions;

void AddBench(CLI::App& app, const char* name, const char* help,
              absl::Status (*run)(const BenchOptions&), BenchOptions& options,
              std::function<absl::Status()>& chosen) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_flag("--quick", options.quick, "Small table, short rounds");
  verb->add_option("--only", options.only, "Only figures whose name starts with this");
  verb->add_option("--json", options.json, "Write the figures to this file");
  verb->add_option("--seed", options.seed, "Seed of the row ids");
  verb->add_option("--provider", options.provider, "libfabric provider of the one-sided paths");
  verb->callback([&, run] { chosen = [&, run] { return run(options); }; });
}

void AddReplay(CLI::App& app, engram::bench::ReplayRun& run,
               std::function<absl::Status()>& chosen) {
  CLI::App* verb =
      app.add_subcommand("replay", "Replay real text against a pool and verify every row");
  verb->add_option("--endpoint", run.endpoint, "Controller, HOST:PORT")->required();
  verb->add_option("--table", run.table, "NAME@VERSION")->required();
  verb->add_option("--trace", run.replay.trace, "tokens_*.u32.zst")->required();
  verb->add_option("--arrivals", run.replay.arrivals, "arrivals_*.jsonl.zst")->required();
  verb->add_option("--table-seed", run.table_seed, "Seed of the table's synthetic rows")
      ->required();
  verb->add_option("--fabric", run.fabric, "Read over this fabric only: mapped, stream, ofi");
  verb->add_option("--seed", run.replay.seed, "Seed of the workload");
  verb->add_option("--decode-batch", run.replay.decode_batch, "Requests that decode together");
  verb->add_option("--seconds", run.seconds, "How long");
  verb->add_option("--name", run.name, "Name of this replica");
  verb->callback([&] { chosen = [&] { return RunReplay(run); }; });
}

void AddCheckpoint(CLI::App& app, engram::bench::CheckpointRun& run,
                   std::function<absl::Status()>& chosen) {
  CLI::App* verb = app.add_subcommand("checkpoint", "Write a V4.1-shaped checkpoint directory");
  verb->add_option("--out", run.out, "Directory to make")->required();
  verb->add_option("--engram-vocab-size", run.engram_vocab_size, "Rows a column starts from");
  verb->add_option("--seed", run.seed, "Seed of the rows");
  verb->add_option("--tokenizer", run.tokenizer,
                   "A tokenizer.json to copy; without it one is generated");
  verb->callback([&] { chosen = [&] { return RunCheckpoint(run); }; });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures the Engram memory pool against floors taken in the same run."};
  app.require_subcommand(1);
  BenchOptions options;
  options.bin_dir = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  engram::bench::ReplayRun replay;
  engram::bench::CheckpointRun checkpoint;
  std::function<absl::Status()> chosen;
  AddBench(app, "floor", "What each transport costs when nothing else is done",
           engram::bench::RunFloor, options, chosen);
  AddBench(app, "pool", "The product over those floors", engram::bench::RunPool, options, chosen);
  AddBench(app, "client", "Steps through the prefetcher", engram::bench::RunClient, options,
           chosen);
  AddBench(app, "placement", "The planner against bounds and simple rules",
           engram::bench::RunPlacement, options, chosen);
  AddBench(app, "tiers", "The NVMe tier against fio and a mapped file", engram::bench::RunTiers,
           options, chosen);
  AddReplay(app, replay, chosen);
  AddCheckpoint(app, checkpoint, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = chosen();
  if (status.ok()) return 0;
  std::fprintf(stderr, "engram-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
