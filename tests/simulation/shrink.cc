#include "tests/simulation/shrink.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace engram::simulation {
namespace {

using std::chrono::milliseconds;

class Shrinker {
 public:
  Shrinker(ScenarioOptions options, const std::function<bool(const ScenarioOptions&)>& fails,
           std::size_t most)
      : best_(options), fails_(fails), left_(most) {}

  ScenarioOptions Run() {
    for (bool smaller = true; smaller && left_ > 0;) {
      const bool shorter = Shorter(), calmer = Calmer();
      smaller = Smaller() || shorter || calmer;
    }
    return best_;
  }

 private:
  bool Try(const ScenarioOptions& smaller) {
    if (left_ == 0) return false;
    --left_;
    if (!fails_(smaller)) return false;
    best_ = smaller;
    return true;
  }

  // What happens before the end of the trouble stays as it is.
  bool Shorter() {
    bool any = false;
    for (int part = 2; part <= 8;) {
      ScenarioOptions smaller = best_;
      smaller.trouble = best_.trouble - best_.trouble / part;
      smaller.trouble = std::chrono::floor<milliseconds>(smaller.trouble);
      const bool done = Try(smaller);
      any = any || done;
      if (!done) part *= 2;
    }
    return any;
  }

  bool Calmer() {
    bool any = false;
    for (std::size_t i = 0; i < kTroubles; ++i) {
      ScenarioOptions smaller = best_;
      smaller.carried_out &= ~Only(static_cast<Trouble>(i));
      if ((best_.drawn & Only(static_cast<Trouble>(i))) == 0) continue;
      if (smaller.carried_out != best_.carried_out) any = Try(smaller) || any;
    }
    return any;
  }

  bool Smaller() {
    bool any = false;
    for (std::size_t ScenarioOptions::*count :
         {&ScenarioOptions::tables, &ScenarioOptions::clients, &ScenarioOptions::nodes}) {
      const std::size_t least = count == &ScenarioOptions::nodes ? 2 : 1;
      for (std::size_t size = least; size < best_.*count || best_.*count == 0; ++size) {
        if (size > 3) break;
        ScenarioOptions smaller = best_;
        smaller.*count = size;
        if (!Try(smaller)) continue;
        any = true;
        break;
      }
    }
    return any;
  }

  ScenarioOptions best_;
  const std::function<bool(const ScenarioOptions&)>& fails_;
  std::size_t left_;
};

bool TakeNumber(const std::string& value, std::uint64_t* number) {
  const char* end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, *number);
  return read.ec == std::errc() && read.ptr == end && !value.empty();
}

bool TakeTroubles(const std::string& value, TroubleSet* named) {
  for (const auto piece : absl::StrSplit(value, ',')) {
    bool known = false;
    for (std::size_t i = 0; i < kTroubles; ++i) {
      if (piece != kTroubleNames[i]) continue;
      *named |= Only(static_cast<Trouble>(i));
      known = true;
    }
    if (!known) return false;
  }
  return true;
}

std::string Names(TroubleSet troubles) {
  std::string out;
  for (std::size_t i = 0; i < kTroubles; ++i) {
    if ((troubles & Only(static_cast<Trouble>(i))) == 0) continue;
    absl::StrAppend(&out, out.empty() ? "" : ",", kTroubleNames[i]);
  }
  return out;
}

}  // namespace

ScenarioOptions Shrink(ScenarioOptions options,
                       const std::function<bool(const ScenarioOptions&)>& fails, std::size_t most) {
  return Shrinker(options, fails, most).Run();
}

std::string Arguments(const ScenarioOptions& options) {
  const ScenarioOptions usual;
  std::string out = absl::StrCat("--seed ", options.seed);
  if (options.drawn != kEveryTrouble) absl::StrAppend(&out, " --only ", Names(options.drawn));
  const TroubleSet left_out = kEveryTrouble & ~options.carried_out & options.drawn;
  if (left_out != 0) absl::StrAppend(&out, " --without ", Names(left_out));
  if (options.trouble != usual.trouble) {
    absl::StrAppend(&out, " --trouble_ms ", options.trouble / milliseconds(1));
  }
  if (options.nodes != 0) absl::StrAppend(&out, " --nodes ", options.nodes);
  if (options.clients != 0) absl::StrAppend(&out, " --clients ", options.clients);
  if (options.tables != 0) absl::StrAppend(&out, " --tables ", options.tables);
  return out;
}

bool TakeArgument(const std::string& name, const std::string& value, ScenarioOptions* options) {
  if (name == "--without" || name == "--only") {
    TroubleSet named = 0;
    if (!TakeTroubles(value, &named)) return false;
    if (name == "--only") options->drawn = named;
    if (name == "--without") options->carried_out = kEveryTrouble & ~named;
    return true;
  }
  std::uint64_t number = 0;
  if (!TakeNumber(value, &number)) return false;
  if (name == "--seed") {
    options->seed = number;
  } else if (name == "--trouble_ms" && number <= 3'600'000) {
    options->trouble = milliseconds(number);
  } else if (name == "--nodes" && number >= 2 && number <= 64) {
    options->nodes = number;
  } else if (name == "--clients" && number >= 1 && number <= 64) {
    options->clients = number;
  } else if (name == "--tables" && number >= 1 && number <= 8) {
    options->tables = number;
  } else {
    return false;
  }
  return true;
}

}  // namespace engram::simulation
