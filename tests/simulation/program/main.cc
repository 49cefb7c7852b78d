// engram-simulate: many seeds of the simulation on every processor, what they counted, and for a
// seed that fails the least history that fails with it, as one line that replays it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/program/workers.h"
#include "tests/simulation/shrink.h"

namespace engram::simulation {
namespace {

constexpr char kUsage[] =
    "usage: ./dev simulate [--seeds N] [--json FILE] [--jobs N]\n"
    "       ./dev simulate --seed S [--trace] [history]\n\n"
    "  --seeds N      run the seeds 1 to N (1000)\n"
    "  --first S      begin with seed S instead\n"
    "  --json FILE    write the report there, too\n"
    "  --jobs N       processes at a time (one a processor)\n"
    "  --seed S       run one seed\n"
    "  --trace        print its history\n\n"
    "history, as a failure prints it:\n"
    "  --only TROUBLE,...  --without TROUBLE,...  --trouble_ms N  --nodes N  --clients N  --tables "
    "N\n";

constexpr std::size_t kMostShrunk = 3;     // seeds
constexpr std::size_t kMostShrinks = 120;  // runs a seed

struct Arguments {
  ScenarioOptions like;
  std::uint64_t first = 1, seeds = 1'000;
  std::size_t jobs = std::max(1u, std::thread::hardware_concurrency());
  std::string json;
  bool one = false;
};

[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "engram-simulate: %s\n\n%s", why.c_str(), kUsage);
  std::exit(2);
}

std::uint64_t NumberOr(const std::string& name, const std::string& value) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || number == 0) {
    Refuse(absl::StrCat(name, " takes a number above 0, not \"", value, "\""));
  }
  return number;
}

Arguments Parse(const std::vector<std::string>& words) {
  Arguments out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (name == "--trace") {
      setenv("ENGRAM_SIM_TRACE", "1", 1);
      continue;
    }
    std::string value;
    if (const std::size_t at = name.find('='); at != std::string::npos) {
      value = name.substr(at + 1);
      name.resize(at);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    if (name == "--seeds") {
      out.seeds = NumberOr(name, value);
    } else if (name == "--first") {
      out.first = NumberOr(name, value);
    } else if (name == "--jobs") {
      out.jobs = NumberOr(name, value);
    } else if (name == "--json") {
      out.json = value;
    } else if (!TakeArgument(name, value, &out.like)) {
      Refuse(absl::StrCat("there is no option ", name, " with \"", value, "\""));
    }
    out.one = out.one || name == "--seed";
  }
  if (out.one) {
    out.first = out.like.seed;
    out.seeds = out.jobs = 1;
  }
  return out;
}

// INTERFACES 6, then everything that was counted.
std::string Json(std::uint64_t seeds, std::size_t failed, const Results& all) {
  std::string out = absl::StrCat("{\"seeds\": ", seeds,
                                 ", \"reads\": ", all.rows_right + all.rows_wrong + all.rows_failed,
                                 ", \"failed_seeds\": ", failed);
  for (const NamedCount& one : kCounts) {
    absl::StrAppend(&out, ", \"", one.name, "\": ", all.*one.count);
  }
  return out + "}\n";
}

void PrintTable(std::uint64_t seeds, std::size_t failed, const Results& all) {
  std::printf("%-22s %14llu\n", "seeds", static_cast<unsigned long long>(seeds));
  std::printf("%-22s %14zu\n", "seeds that failed", failed);
  for (const NamedCount& one : kCounts) {
    std::string name = one.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    std::printf("%-22s %14llu\n", name.c_str(), static_cast<unsigned long long>(all.*one.count));
  }
}

void ReportFailure(const ScenarioOptions& like, const SeedReport& report, bool shrink) {
  ScenarioOptions options = like;
  options.seed = report.seed;
  std::printf("seed %llu FAILED: %s\n", static_cast<unsigned long long>(report.seed),
              report.failure.c_str());
  if (shrink) {
    const auto fails = [](const ScenarioOptions& smaller) {
      return !RunAlone(smaller).failure.empty();
    };
    options = Shrink(options, fails, kMostShrinks);
    std::printf("  the least that fails: %s\n", RunAlone(options).failure.c_str());
  }
  std::printf("  replay: ./dev simulate %s --trace\n", simulation::Arguments(options).c_str());
  std::fflush(stdout);
}

int Run(const Arguments& arguments) {
  Results all;
  std::vector<SeedReport> failed;
  RunSeeds(arguments.like, arguments.first, arguments.seeds, arguments.jobs, false,
           [&](const SeedReport& report) {
             all += report.results;
             if (!report.failure.empty()) failed.push_back(report);
           });
  for (std::size_t i = 0; i < failed.size(); ++i) {
    ReportFailure(arguments.like, failed[i], !arguments.one && i < kMostShrunk);
  }
  PrintTable(arguments.seeds, failed.size(), all);
  if (!arguments.json.empty()) {
    std::ofstream file(arguments.json);
    file << Json(arguments.seeds, failed.size(), all);
    if (!file.flush()) {
      std::fprintf(stderr, "engram-simulate: %s cannot be written\n", arguments.json.c_str());
      return 1;
    }
  }
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace engram::simulation

int main(int argc, char** argv) {
  return engram::simulation::Run(
      engram::simulation::Parse(std::vector<std::string>(argv + 1, argv + argc)));
}
