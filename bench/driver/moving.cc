// The moving part of `placement`: a node of a real pool is drained under reads over `stream`.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/histogram.h"
#include "bench/driver/scene.h"
#include "bench/driver/timed_step.h"

namespace engram::bench {
namespace {

constexpr char kMovedTable[] = "moved@1";
constexpr std::uint32_t kDecodeRows = 64 * 24;                 // of a layer
constexpr std::uint64_t kMoveRate = std::uint64_t{256} << 20;  // bytes/s: a node's default
constexpr Duration kAloneFor = std::chrono::seconds(3);
constexpr Duration kNoWindow = std::chrono::seconds(1);

// Two nodes, one of which holds the whole table.
absl::Status StartPool(Scene* scene) {
  const bool quick = scene->options.quick;
  auto pool = LocalPool::Up(scene->options.bin_dir, 2, quick ? "768MiB" : "3GiB", "stream");
  if (!pool.ok()) return pool.status();
  scene->pool = *std::move(pool);
  const std::string spec = scene->pool->dir() + "/spec.json";
  std::ofstream(spec) << "{\"model\": \"deepseek-v4.1\", \"engram_vocab_size\": "
                      << (quick ? 32'000 : 176'000)
                      << ", \"layers\": [1, 14], \"seed\": " << kTableSeed << "}\n";
  return scene->pool
      ->Ctl({"load", "table", kMovedTable, "--synthetic", spec, "--max-nodes", "1", "--wait"})
      .status();
}

// Decode steps until `stop`; their tail, in us.
absl::StatusOr<double> TailUntil(TimedStep& step, const std::function<bool()>& stop) {
  Histogram took_us;
  do {
    auto took = step.Run(kNoWindow);
    if (!took.ok()) return took.status();
    took_us.Add(static_cast<double>(took->count()) / 1e3);
  } while (!stop());
  return took_us.Quantile(0.99);
}

struct Moved {
  double tail_ratio = 0, rate_ratio = 0;
};

// Everything that `node` has goes to the other one, which then is where the next round starts.
absl::StatusOr<Moved> Drain(const Scene& scene, TimedStep& step, const std::string& node,
                            double bytes) {
  const Clock& clock = SystemClock::Get();
  const Instant begin = clock.Now();
  auto alone = TailUntil(step, [&] { return clock.Now() - begin > kAloneFor; });
  if (!alone.ok()) return alone.status();
  std::atomic<bool> done{false};
  absl::Status drained;
  double seconds = 0;
  std::thread drain([&] {
    const Instant asked = clock.Now();
    drained = scene.pool->Ctl({"drain", "node", node, "--wait"}).status();
    seconds = Seconds(clock.Now() - asked);
    done = true;
  });
  auto beside = TailUntil(step, [&] { return done.load(); });
  drain.join();
  if (!drained.ok()) return drained;
  if (!beside.ok()) return beside.status();
  auto back = scene.pool->Ctl({"uncordon", "node", node});
  if (!back.ok()) return back.status();
  return Moved{*beside / *alone, bytes / seconds / static_cast<double>(kMoveRate)};
}

absl::StatusOr<std::string> FirstNode(const Scene& scene) {
  auto replicas = scene.pool->Ctl({"get", "replicas", "-o", "json"});
  if (!replicas.ok()) return replicas.status();
  return replicas->find("\"node-0\"") != std::string::npos ? "node-0" : "node-1";
}

}  // namespace

absl::StatusOr<std::vector<Figure>> MeasureMoves(const BenchOptions& options) {
  Scene scene;
  scene.options = options;
  if (absl::Status ok = StartPool(&scene); !ok.ok()) return ok;
  auto opened = OpenedTable::Open(scene, FabricKind::kStream, kMovedTable);
  if (!opened.ok()) return opened.status();
  auto prefetcher = opened->table->OpenPrefetcher({});
  if (!prefetcher.ok()) return prefetcher.status();
  auto step = TimedStep::Open(*opened->table, prefetcher->get(), opened->shape(),
                              client::StepKind::kDecode, kDecodeRows, options.seed);
  if (!step.ok()) return step.status();
  auto node = FirstNode(scene);
  if (!node.ok()) return node.status();
  const double bytes =
      static_cast<double>(opened->shape().rows) * (opened->shape().row_bytes + kSealBytes);
  std::vector<double> tails, rates;
  for (int round = 0; round < scene.rounds(); ++round) {
    auto moved = Drain(scene, **step, *node, bytes);
    if (!moved.ok()) return moved.status();
    tails.push_back(moved->tail_ratio);
    rates.push_back(moved->rate_ratio);
    *node = *node == "node-0" ? "node-1" : "node-0";
  }
  Figure tail;
  tail.figure = "read_p99_during_move";
  tail.reference = "the same decode steps (batch 64, stream) with nothing moving";
  tail.goal = 1.3;
  tail.smaller_is_better = true;
  tail.seed = options.seed;
  tail.rows_verified = (*step)->rows_verified();
  Figure rate = tail;
  rate.figure = "move_vs_rate";
  rate.reference = absl::StrCat("--move-rate ", kMoveRate >> 20, "MiB");
  rate.goal = 0.9;
  rate.smaller_is_better = false;
  Summarise(std::move(tails), &tail);
  Summarise(std::move(rates), &rate);
  return std::vector{std::move(tail), std::move(rate)};
}

}  // namespace engram::bench
