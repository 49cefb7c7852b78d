#include "bench/driver/figures.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace engram::bench {
namespace {

// The value of the first line of `path` that starts with `key`, after its colon.
std::string Field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

}  // namespace

void Summarise(std::vector<double> rounds, Figure* figure) {
  std::sort(rounds.begin(), rounds.end());
  const std::size_t n = rounds.size();
  figure->value = n % 2 == 1 ? rounds[n / 2] : (rounds[n / 2 - 1] + rounds[n / 2]) / 2;
  figure->spread = (rounds.back() - rounds.front()) / figure->value;
  figure->runs = static_cast<int>(n);
}

void PrintTable(const std::vector<Figure>& figures) {
  std::printf("%-34s %10s %-8s %8s %-5s %6s %12s  %s\n", "FIGURE", "VALUE", "UNIT", "GOAL", "MET",
              "SPREAD", "VERIFIED", "AGAINST");
  for (const Figure& f : figures) {
    const std::string goal =
        f.goal == 0 ? "-" : absl::StrCat(f.smaller_is_better ? "<=" : ">=", f.goal);
    std::printf("%-34s %10.3f %-8s %8s %-5s %5.0f%% %12llu  %s\n", f.figure.c_str(), f.value,
                f.unit.c_str(), goal.c_str(),
                f.goal == 0 ? ""
                : f.Met()   ? "yes"
                            : "NO",
                100 * f.spread, static_cast<unsigned long long>(f.rows_verified),
                f.reference.c_str());
  }
}

std::string DescribeMachine() {
  utsname name{};
  uname(&name);
  return absl::StrCat(Field("/proc/cpuinfo", "model name"), ", family ",
                      Field("/proc/cpuinfo", "cpu family"), ", ", sysconf(_SC_NPROCESSORS_ONLN),
                      " cores, ", Field("/proc/meminfo", "MemTotal"), " memory, ", name.sysname,
                      " ", name.release, ", ", Field("/proc/meminfo", "HugePages_Total"),
                      " huge pages");
}

absl::Status WriteJson(const std::vector<Figure>& figures, const std::string& path) {
  nlohmann::json list = nlohmann::json::array();
  for (const Figure& f : figures) {
    list.push_back({{"figure", f.figure},
                    {"value", f.value},
                    {"unit", f.unit},
                    {"reference", f.reference},
                    {"goal", f.goal == 0 ? nlohmann::json() : nlohmann::json(f.goal)},
                    {"runs", f.runs},
                    {"spread", f.spread},
                    {"rows_verified", f.rows_verified},
                    {"seed", f.seed},
                    {"trace", f.trace}});
  }
  std::ofstream file(path);
  file << list.dump(2) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace engram::bench
