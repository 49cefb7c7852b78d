#include "bench/driver/moved_pool.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/driver/histogram.h"

namespace engram::bench {
namespace {

constexpr char kMovedTable[] = "moved@1";
constexpr std::uint32_t kDecodeRows = 64 * 24;  // of a layer
constexpr Duration kNoWindow = std::chrono::seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<MovedPool>> MovedPool::Up(const BenchOptions& options,
                                                         const Shape& shape) {
  std::unique_ptr<MovedPool> out(new MovedPool);
  Scene& scene = out->scene_;
  scene.options = options;
  const bool quick = options.quick;
  auto pool = LocalPool::Up(options.bin_dir, shape.nodes, quick ? "768MiB" : "3GiB", "stream");
  if (!pool.ok()) return pool.status();
  scene.pool = *std::move(pool);
  const std::string spec = scene.pool->dir() + "/spec.json";
  std::ofstream(spec) << "{\"model\": \"deepseek-v4.1\", \"engram_vocab_size\": "
                      << (quick ? 32'000 : 176'000)
                      << ", \"layers\": [1, 14], \"seed\": " << kTableSeed << "}\n";
  auto loaded = scene.pool->Ctl({"load", "table", kMovedTable, "--synthetic", spec, "--replicas",
                                 shape.replicas, "--max-nodes", shape.max_nodes, "--wait"});
  if (!loaded.ok()) return loaded.status();
  auto opened = OpenedTable::Open(scene, FabricKind::kStream, kMovedTable);
  if (!opened.ok()) return opened.status();
  out->opened_ = *std::move(opened);
  auto prefetcher = out->opened_.table->OpenPrefetcher({});
  if (!prefetcher.ok()) return prefetcher.status();
  out->prefetcher_ = *std::move(prefetcher);
  auto step = TimedStep::Open(*out->opened_.table, out->prefetcher_.get(), out->opened_.shape(),
                              client::StepKind::kDecode, kDecodeRows, options.seed);
  if (!step.ok()) return step.status();
  out->step_ = *std::move(step);
  return out;
}

double MovedPool::bytes() const {
  const TableShape shape = opened_.shape();
  return static_cast<double>(shape.rows) * (shape.row_bytes + kSealBytes);
}

absl::StatusOr<double> MovedPool::TailUntil(const std::function<bool()>& stop) {
  Histogram took_us;
  do {
    auto took = step_->Run(kNoWindow);
    if (!took.ok()) return took.status();
    took_us.Add(static_cast<double>(took->count()) / 1e3);
  } while (!stop());
  return took_us.Quantile(0.99);
}

absl::StatusOr<double> MovedPool::TailFor(Duration length) {
  const Instant end = SystemClock::Get().Now() + length;
  return TailUntil([end] { return SystemClock::Get().Now() > end; });
}

void MovedPool::ReadThrough(Duration length) {
  const Instant end = SystemClock::Get().Now() + length;
  while (SystemClock::Get().Now() < end) (void)step_->Run(kNoWindow);
}

std::vector<Figure> MovedPool::Figures(const char* tail_name, const char* rate_name,
                                       const std::string& alone,
                                       const std::vector<Moved>& moved) const {
  std::vector<double> tails, rates;
  for (const Moved& one : moved) {
    tails.push_back(one.tail_ratio);
    rates.push_back(one.rate_ratio);
  }
  Figure tail;
  tail.figure = tail_name;
  tail.reference = alone;
  tail.goal = 1.3;
  tail.smaller_is_better = true;
  tail.seed = scene_.options.seed;
  tail.rows_verified = step_->rows_verified();
  Figure rate = tail;
  rate.figure = rate_name;
  rate.reference = absl::StrCat("--move-rate ", kMoveRate >> 20, "MiB");
  rate.goal = 0.9;
  rate.smaller_is_better = false;
  Summarise(std::move(tails), &tail);
  Summarise(std::move(rates), &rate);
  return {std::move(tail), std::move(rate)};
}

}  // namespace engram::bench
