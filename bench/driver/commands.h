// The verbs of engram-bench. Each returns OK, or the first thing that went wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/driver/figures.h"
#include "bench/replay.h"
#include "engram/clock.h"

namespace engram::bench {

inline double Seconds(Duration d) { return static_cast<double>(d.count()) / 1e9; }

inline constexpr std::uint32_t kBatchSizes[] = {24, 48, 288, 1536, 3072, 24576};

struct BenchOptions {
  bool quick = false;  // smaller table, shorter rounds
  std::string only;    // measure figures whose name starts with this; empty = all
  std::string json;    // where to write the figures; empty = nowhere
  std::uint64_t seed = 1;
  std::string provider = "tcp;ofi_rxm";  // of the one-sided paths
  std::string bin_dir;                   // where engramctl and the daemons are
  std::string sources;  // of the checkout, for traces; empty = two folders above bin_dir
};
inline bool Wanted(const BenchOptions& options, std::string_view figure) {
  return figure.starts_with(options.only);
}

// What each transport costs when nothing else is done.
absl::Status RunFloor(const BenchOptions& options);
// The product over those floors, in the same rounds.
absl::Status RunPool(const BenchOptions& options);
// Steps through the prefetcher: what they add to the bare reader, and when their rows are there.
absl::Status RunClient(const BenchOptions& options);
// The planner against bounds and simple rules, then a pool in which everything moves under reads.
absl::Status RunPlacement(const BenchOptions& options);
// The NVMe tier against fio and a mapping on the same file system.
absl::Status RunTiers(const BenchOptions& options);

// `addressing_us_per_token` and `load_vs_dd`; part of RunPool.
absl::StatusOr<Figure> MeasureAddressing(const BenchOptions& options);
absl::StatusOr<Figure> MeasureLoad(const BenchOptions& options);
// `epoch_heard_ms`; part of RunPlacement.
absl::StatusOr<Figure> MeasureEpochs(const BenchOptions& options);
// `read_p99_during_move` and `move_vs_rate`; part of RunPlacement.
absl::StatusOr<std::vector<Figure>> MeasureMoves(const BenchOptions& options);
// `read_p99_during_repair` and `repair_vs_rate`; part of RunPlacement.
absl::StatusOr<std::vector<Figure>> MeasureRepairs(const BenchOptions& options);
// Those of the row caches that `options` want; part of RunClient. Forks: no thread runs yet.
absl::StatusOr<std::vector<Figure>> MeasureCaches(const BenchOptions& options);

struct ReplayRun {
  ReplayOptions replay;
  std::string endpoint, table, fabric, name;
  std::uint64_t table_seed = 0;
  double seconds = 10;
};
// Reads what a replica would read, verifies every row, prints one JSON object a line: twice a
// second what happened since the last one, at the end the whole ("final": true).
absl::Status RunReplay(const ReplayRun& run);

struct CheckpointRun {
  std::string out;
  std::uint64_t engram_vocab_size = 160'000;
  std::uint64_t seed = 0;
  std::string tokenizer;  // path of a tokenizer.json to copy; empty = generate one
};
// Writes a V4.1-shaped checkpoint directory whose rows are the synthetic bytes of `seed`.
absl::Status RunCheckpoint(const CheckpointRun& run);

}  // namespace engram::bench
