#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/histogram.h"
#include "bench/driver/step_reader.h"

namespace engram::bench {
namespace {

constexpr Duration kReportEvery = std::chrono::milliseconds(500);
constexpr Duration kStepDeadline = std::chrono::seconds(1);

// SIGTERM ends a replay early; it still says what it did.
std::atomic<bool> stop_asked{false};

// What happened in one interval, or in all of them.
struct Tally {
  std::uint64_t steps = 0, tokens = 0, rows_ok = 0, rows_failed = 0, rows_wrong = 0,
                rows_verified = 0;
  std::uint64_t rows_distinct = 0;
  Duration reading{};
  Histogram decode_us, prefill_us;

  void Add(const Step& step, const StepOutcome& outcome) {
    ++steps;
    tokens += step.tokens;
    rows_ok += outcome.rows_ok;
    rows_failed += outcome.rows_failed;
    rows_wrong += outcome.rows_wrong;
    rows_verified += outcome.rows_verified;
    rows_distinct += outcome.rows_distinct;
    reading += outcome.took;
    const double us = static_cast<double>(outcome.took.count()) / 1e3;
    // A step that failed took its deadline; it would say nothing about the others.
    if (outcome.rows_failed == 0)
      (step.kind == Step::Kind::kDecode ? decode_us : prefill_us).Add(us);
  }

  // Rates are over the time spent reading: verification is left out.
  nlohmann::json Rates() const {
    const double seconds = std::max(Seconds(reading), 1e-9);
    const double rows = static_cast<double>(rows_ok + rows_failed);
    return {{"steps", steps},
            {"tokens", tokens},
            {"rows_ok", rows_ok},
            {"rows_per_s", static_cast<double>(rows_ok) / seconds},
            {"tokens_per_s", static_cast<double>(tokens) / seconds},
            {"failed_per_s", static_cast<double>(rows_failed) / seconds},
            {"duplicate_share", rows == 0 ? 0 : 1 - static_cast<double>(rows_distinct) / rows},
            {"decode_p50_us", decode_us.Quantile(0.5)},
            {"decode_p99_us", decode_us.Quantile(0.99)},
            {"prefill_p50_us", prefill_us.Quantile(0.5)},
            {"prefill_p99_us", prefill_us.Quantile(0.99)}};
  }
};

class Reporter {
 public:
  Reporter(std::string name, Instant begin) : name_(std::move(name)), begin_(begin), last_(begin) {}

  void Add(Instant now, const Step& step, const StepOutcome& outcome) {
    interval_.Add(step, outcome);
    total_.Add(step, outcome);
    if (outcome.rows_failed > 0) last_failure_ = now;
    if (!outcome.failure.empty() && !failing_) error_ = outcome.failure;
    failing_ = !outcome.failure.empty();
    if (now - last_ >= kReportEvery) Print(now);
  }

  void Final(Instant now, const std::map<std::string, std::uint64_t>& rows_by_node) {
    nlohmann::json line = total_.Rates();
    Totals(now, line);
    line["final"] = true;
    line["seconds_since_last_failure"] =
        total_.rows_failed == 0 ? -1 : Seconds(now - last_failure_);
    std::uint64_t rows = 0;
    for (const auto& [node, count] : rows_by_node) rows += count;
    for (const auto& [node, count] : rows_by_node) {
      line["rows_by_node"][node] = static_cast<double>(count) / static_cast<double>(rows);
    }
    std::printf("%s\n", line.dump().c_str());
  }

 private:
  void Print(Instant now) {
    nlohmann::json line = interval_.Rates();
    Totals(now, line);
    if (!error_.empty()) line["error"] = error_;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    interval_ = Tally();
    error_.clear();
    last_ = now;
  }

  void Totals(Instant now, nlohmann::json& line) const {
    line["name"] = name_;
    line["t"] = Seconds(now - begin_);
    line["rows_verified"] = total_.rows_verified;
    line["rows_failed"] = total_.rows_failed;
    line["rows_wrong"] = total_.rows_wrong;
  }

  const std::string name_;
  const Instant begin_;
  Instant last_, last_failure_{};
  Tally interval_, total_;
  std::string error_;
  bool failing_ = false;
};

}  // namespace

absl::Status RunReplay(const ReplayRun& run) {
  auto replay = Replay::Open(run.replay);
  if (!replay.ok()) return replay.status();
  client::PoolOptions options;
  options.endpoints = {run.endpoint};
  options.client_name = run.name;
  if (!run.fabric.empty() && run.fabric != "auto") {
    auto fabric = ParseFabricKind(run.fabric);
    if (!fabric.ok()) return fabric.status();
    options.fabric = *fabric;
  }
  auto pool = client::Pool::Open(options);
  if (!pool.ok()) return pool.status();
  auto table = (*pool)->OpenTable(run.table, {});
  if (!table.ok()) return table.status();
  const std::uint32_t max_tokens = std::max(kPrefillChunk, run.replay.decode_batch);
  auto reader = StepReader::Open(table->get(), run.table_seed, max_tokens, kStepDeadline);
  if (!reader.ok()) return reader.status();

  const Clock& clock = SystemClock::Get();
  const Instant begin = clock.Now();
  Reporter reporter(run.name, begin);
  Instant now = begin;
  std::signal(SIGTERM, [](int) { stop_asked = true; });
  while (!stop_asked && Seconds(now - begin) < run.seconds) {
    const Step& step = replay->Next();
    auto outcome = (*reader)->Read(step);
    if (!outcome.ok()) return outcome.status();
    now = clock.Now();
    reporter.Add(now, step, *outcome);
  }
  reporter.Final(now, (*reader)->rows_by_node());
  return absl::OkStatus();
}

}  // namespace engram::bench
