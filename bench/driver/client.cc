// engram-bench client: what the prefetcher adds to the bare reader, and when the rows of a step are
// there.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/driver/figures.h"
#include "bench/driver/pool_path.h"
#include "bench/driver/scene.h"
#include "bench/driver/timed_step.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kColumns = 24;  // of a layer
constexpr Duration kNoHurry = std::chrono::seconds(1);

double Microseconds(Duration d) { return static_cast<double>(d.count()) / 1e3; }

Figure Named(const Scene& scene, std::string figure, std::string reference, double goal) {
  std::fprintf(stderr, "  %s\n", figure.c_str());
  Figure out;
  out.figure = std::move(figure);
  out.reference = std::move(reference);
  out.goal = goal;
  out.smaller_is_better = true;
  out.seed = scene.options.seed;
  return out;
}

void Record(Scene& scene, Figure figure, std::vector<double> rounds) {
  Summarise(std::move(rounds), &figure);
  scene.figures.push_back(std::move(figure));
}

// The same rows as one request of a bare reader and as one step: what the step costs more, in us of
// a batch and as a share of the reader's time.
absl::Status Overhead(Scene& scene, FabricKind fabric, std::uint32_t rows, double goal) {
  const bool mapped = fabric == FabricKind::kMapped;
  const std::string name = absl::StrCat("prefetch_overhead_", mapped ? "mapped_us_" : "", rows);
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  Figure figure =
      Named(scene, name, absl::StrCat("RowReader over ", std::string(Name(fabric))), goal);
  if (mapped) figure.unit = "us";
  auto opened = OpenedTable::Open(scene, fabric, mapped ? kPlainTable : kSealedTable);
  if (!opened.ok()) return opened.status();
  auto reader = PoolPath("reader", *opened->table, rows, 1);
  if (!reader.ok()) return reader.status();
  auto steps = StepPath("prefetcher", *opened->table);
  if (!steps.ok()) return steps.status();
  std::vector<double> rounds;
  for (int round = 0; round < 3 * scene.rounds(); ++round) {
    BatchSet set(opened->shape(), rows, BatchesPerCall(rows, 1),
                 scene.options.seed + static_cast<std::uint64_t>(round));
    auto bare = Measure(**reader, set, scene.budget());
    if (!bare.ok()) return bare.status();
    auto step = Measure(**steps, set, scene.budget());
    if (!step.ok()) return step.status();
    const double bare_us = 1e6 * rows / bare->rows_per_second;
    const double step_us = 1e6 * rows / step->rows_per_second;
    rounds.push_back(mapped ? step_us - bare_us : step_us / bare_us - 1);
    figure.rows_verified += bare->rows_verified + step->rows_verified;
  }
  Record(scene, std::move(figure), std::move(rounds));
  return absl::OkStatus();
}

// A table over one fabric, and a prefetcher served by whoever waits.
struct Opened {
  static absl::StatusOr<Opened> Open(Scene& scene, FabricKind fabric, const char* table) {
    Opened opened;
    auto reached = OpenedTable::Open(scene, fabric, table);
    if (!reached.ok()) return reached.status();
    opened.table = *std::move(reached);
    auto prefetcher = opened.table.table->OpenPrefetcher({});
    if (!prefetcher.ok()) return prefetcher.status();
    opened.prefetcher = *std::move(prefetcher);
    return opened;
  }
  absl::StatusOr<std::unique_ptr<TimedStep>> Step(client::StepKind kind, std::uint32_t tokens,
                                                  std::uint64_t seed) {
    return TimedStep::Open(*table.table, prefetcher.get(), table.shape(), kind, tokens * kColumns,
                           seed);
  }
  std::uint64_t rows_late() const { return table.table->Totals().rows_late; }

  OpenedTable table;
  std::unique_ptr<client::SharedPrefetcher> prefetcher;
};

// Rows of the first layer that were not there `window` after the submit, over so many steps.
absl::StatusOr<std::uint64_t> RowsLate(Opened& opened, TimedStep& step, Duration window,
                                       int steps) {
  const std::uint64_t before = opened.rows_late();
  for (int i = 0; i < steps; ++i) {
    auto took = step.Run(window);
    if (!took.ok()) return took.status();
  }
  return opened.rows_late() - before;
}

// The smallest window, in steps of 5 %, in which no row of 20 decode steps of batch 64 is late.
absl::Status Window(Scene& scene, const char* table, const char* name, double goal) {
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  constexpr std::uint32_t kTokens = 64;
  constexpr int kSteps = 20;
  Figure figure = Named(scene, name, absl::StrCat("raw_gather_", kTokens * kColumns), goal);
  auto opened = Opened::Open(scene, FabricKind::kMapped, table);
  if (!opened.ok()) return opened.status();
  const auto gather = RawGather(*scene.rows);
  std::vector<double> rounds;
  for (int round = 0; round < 3 * scene.rounds(); ++round) {
    const std::uint64_t seed = scene.options.seed + static_cast<std::uint64_t>(round);
    BatchSet set(opened->table.shape(), kTokens * kColumns, 1, seed);
    auto raw = Measure(*gather, set, scene.budget() / 10);
    if (!raw.ok()) return raw.status();
    auto step = opened->Step(client::StepKind::kDecode, kTokens, seed);
    if (!step.ok()) return step.status();
    double ratio = 0.8;
    for (;; ratio *= 1.05) {
      const auto window = Duration(static_cast<std::int64_t>(1e3 * ratio * raw->batch_us_p50));
      auto late = RowsLate(*opened, **step, window, kSteps);
      if (!late.ok()) return late.status();
      if (*late == 0) break;
    }
    rounds.push_back(ratio);
    figure.rows_verified += (*step)->rows_verified();
  }
  Record(scene, std::move(figure), std::move(rounds));
  return absl::OkStatus();
}

// The median time until the rows of the first layer are there.
absl::StatusOr<Duration> FirstLayerTime(TimedStep& step, int steps) {
  std::vector<Duration> times;
  for (int i = 0; i < steps; ++i) {
    step.Draw();
    const Instant begin = SystemClock::Get().Now();
    if (absl::Status ok = step.Submit(kNoHurry); !ok.ok()) return ok;
    if (absl::Status ok = step.WaitFirst(); !ok.ok()) return ok;
    times.push_back(SystemClock::Get().Now() - begin);
    if (absl::Status ok = step.WaitAll(); !ok.ok()) return ok;
    if (absl::Status ok = step.Finish(); !ok.ok()) return ok;
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[static_cast<std::size_t>(steps) / 2];
}

// Whether the machine did something else for longer than `slack` while a thread looked at the clock
// for as long as `work` takes.
bool IsTakenAway(Duration work, Duration slack) {
  const Clock& clock = SystemClock::Get();
  Duration worked{0}, longest{0};
  for (Instant last = clock.Now(); worked < work;) {
    const Instant now = clock.Now();
    longest = std::max(longest, now - last);
    worked += std::min<Duration>(now - last, std::chrono::microseconds(1));
    last = now;
  }
  return longest > slack;
}

// Rows that are late, and, in turn with those steps, how many would be of work that takes as long
// and reads nothing.
absl::Status LateRows(Scene& scene) {
  if (!Wanted(scene.options, "rows_late_decode8_56us")) return absl::OkStatus();
  constexpr int kSteps = 1000;
  constexpr std::uint32_t kTokens = 8;
  constexpr Duration kWindow = std::chrono::microseconds(56);
  Figure figure =
      Named(scene, "rows_late_decode8_56us", absl::StrCat(kSteps, " steps a round"), 0.5);
  Figure floor = Named(scene, "rows_late_decode8_56us_floor", "as much time without a read", 0);
  figure.unit = floor.unit = "rows";
  auto opened = Opened::Open(scene, FabricKind::kMapped, kSealedTable);
  if (!opened.ok()) return opened.status();
  auto step = opened->Step(client::StepKind::kDecode, kTokens, scene.options.seed);
  if (!step.ok()) return step.status();
  std::vector<double> rounds, floors;
  for (int round = 0; round < scene.rounds(); ++round) {
    auto took = FirstLayerTime(**step, kSteps / 10);
    if (!took.ok()) return took.status();
    const std::uint64_t before = opened->rows_late();
    std::uint32_t lost = 0;
    const Duration slack = kWindow - *took;
    for (int i = 0; i < kSteps; ++i) {
      auto ran = (*step)->Run(kWindow);
      if (!ran.ok()) return ran.status();
      lost += IsTakenAway(*took, slack) ? kTokens * kColumns : 0;
    }
    rounds.push_back(static_cast<double>(opened->rows_late() - before));
    floors.push_back(lost);
  }
  figure.rows_verified = (*step)->rows_verified();
  Record(scene, std::move(figure), std::move(rounds));
  Record(scene, std::move(floor), std::move(floors));
  return absl::OkStatus();
}

double Quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// Times of so many steps, with a prefill step kept outstanding beside them if there is one.
absl::StatusOr<std::vector<double>> StepTimes(TimedStep& step, int steps, TimedStep* beside) {
  std::vector<double> times;
  bool running = false;
  for (int i = 0; i < steps; ++i) {
    if (beside != nullptr && running && beside->Done()) {
      if (absl::Status ok = beside->Finish(); !ok.ok()) return ok;
      running = false;
    }
    if (beside != nullptr && !running) {
      beside->Draw();
      if (absl::Status ok = beside->Submit(kNoHurry); !ok.ok()) return ok;
      running = true;
    }
    auto took = step.Run(kNoHurry);
    if (!took.ok()) return took.status();
    times.push_back(Microseconds(*took));
  }
  if (running) {
    if (absl::Status ok = beside->WaitAll(); !ok.ok()) return ok;
    if (absl::Status ok = beside->Finish(); !ok.ok()) return ok;
  }
  return times;
}

absl::Status BesidePrefill(Scene& scene) {
  if (!Wanted(scene.options, "decode_p99_beside_prefill")) return absl::OkStatus();
  Figure figure = Named(scene, "decode_p99_beside_prefill", "decode batch 64 alone, stream", 2);
  auto opened = Opened::Open(scene, FabricKind::kStream, kSealedTable);
  if (!opened.ok()) return opened.status();
  auto decode = opened->Step(client::StepKind::kDecode, 64, scene.options.seed);
  if (!decode.ok()) return decode.status();
  auto prefill = opened->Step(client::StepKind::kPrefill, 4096, scene.options.seed + 1);
  if (!prefill.ok()) return prefill.status();
  const int steps = scene.options.quick ? 100 : 300;
  std::vector<double> rounds;
  for (int round = 0; round < scene.rounds(); ++round) {
    auto alone = StepTimes(**decode, steps, nullptr);
    if (!alone.ok()) return alone.status();
    auto beside = StepTimes(**decode, steps, prefill->get());
    if (!beside.ok()) return beside.status();
    rounds.push_back(Quantile(*beside, 0.99) / Quantile(*alone, 0.99));
  }
  figure.rows_verified = (*decode)->rows_verified() + (*prefill)->rows_verified();
  Record(scene, std::move(figure), std::move(rounds));
  return absl::OkStatus();
}

struct Shape {
  const char* name;
  client::StepKind kind;
  std::uint32_t tokens;
};
constexpr Shape kShapes[] = {
    {"decode1", client::StepKind::kDecode, 1},        {"decode8", client::StepKind::kDecode, 8},
    {"decode16", client::StepKind::kDecode, 16},      {"decode64", client::StepKind::kDecode, 64},
    {"decode256", client::StepKind::kDecode, 256},    {"verify6", client::StepKind::kVerify, 6},
    {"prefill4096", client::StepKind::kPrefill, 4096}};

// Latency of whole steps: for people, without a goal.
absl::Status Latencies(Scene& scene, FabricKind fabric) {
  const std::string prefix = absl::StrCat("step_us_", std::string(Name(fabric)), "_");
  if (!Wanted(scene.options, prefix)) return absl::OkStatus();
  auto opened = Opened::Open(scene, fabric, kSealedTable);
  if (!opened.ok()) return opened.status();
  for (const Shape& shape : kShapes) {
    Figure p50 = Named(scene, absl::StrCat(prefix, shape.name, "_p50"), "", 0);
    Figure p99 = p50;
    p99.figure = absl::StrCat(prefix, shape.name, "_p99");
    auto step = opened->Step(shape.kind, shape.tokens, scene.options.seed);
    if (!step.ok()) return step.status();
    const int steps = shape.tokens >= 4096 ? 10 : scene.options.quick ? 50 : 200;
    std::vector<double> medians, tails;
    for (int round = 0; round < scene.rounds(); ++round) {
      auto times = StepTimes(**step, steps, nullptr);
      if (!times.ok()) return times.status();
      medians.push_back(Quantile(*times, 0.5));
      tails.push_back(Quantile(*times, 0.99));
    }
    p50.unit = p99.unit = "us";
    p50.rows_verified = p99.rows_verified = (*step)->rows_verified();
    Record(scene, std::move(p50), std::move(medians));
    Record(scene, std::move(p99), std::move(tails));
  }
  return absl::OkStatus();
}

absl::Status Measurements(Scene& scene) {
  for (const auto& [rows, goal] : {std::pair{48u, 0.15}, std::pair{3072u, 0.05}}) {
    if (absl::Status ok = Overhead(scene, FabricKind::kStream, rows, goal); !ok.ok()) return ok;
  }
  if (absl::Status ok = Overhead(scene, FabricKind::kMapped, 48, 1.5); !ok.ok()) return ok;
  if (absl::Status ok = Window(scene, kPlainTable, "window_decode64_vs_raw", 1.25); !ok.ok())
    return ok;
  if (absl::Status ok = Window(scene, kSealedTable, "window_decode64_sealed_vs_raw", 0); !ok.ok())
    return ok;
  if (absl::Status ok = LateRows(scene); !ok.ok()) return ok;
  if (absl::Status ok = BesidePrefill(scene); !ok.ok()) return ok;
  for (const FabricKind fabric : {FabricKind::kMapped, FabricKind::kStream}) {
    if (absl::Status ok = Latencies(scene, fabric); !ok.ok()) return ok;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunClient(const BenchOptions& options) {
  auto caches = MeasureCaches(options);
  if (!caches.ok()) return caches.status();
  if (options.only.starts_with("reads_per_token") || options.only.starts_with("cache_")) {
    PrintTable(*caches);  // no pool is needed
    return options.json.empty() ? absl::OkStatus() : WriteJson(*caches, options.json);
  }
  auto scene = Scene::Open(options);
  if (!scene.ok()) return scene.status();
  (*scene)->figures = *std::move(caches);
  if (absl::Status ok = Measurements(**scene); !ok.ok()) return ok;
  return (*scene)->Report();
}

}  // namespace engram::bench
