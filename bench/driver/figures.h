// What the bench reports: named figures with their goal, printed as a table and written as JSON
// (INTERFACES section 6), and the statistics behind them. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace engram::bench {

struct Figure {
  std::string figure;
  double value = 0;  // median over rounds
  std::string unit = "ratio";
  std::string reference;  // what it was measured against, in the same rounds
  double goal = 0;        // 0 = none
  bool smaller_is_better = false;
  int runs = 0;
  double spread = 0;  // (largest - smallest) / median over rounds
  std::uint64_t rows_verified = 0;
  std::uint64_t seed = 0;
  std::string trace;

  bool Met() const { return goal == 0 || (smaller_is_better ? value <= goal : value >= goal); }
};

// Median and spread of one value a round. REQUIRES: rounds is not empty.
void Summarise(std::vector<double> rounds, Figure* figure);

void PrintTable(const std::vector<Figure>& figures);
// The machine, for people: processor, cores, memory, kernel, huge pages.
std::string DescribeMachine();
absl::Status WriteJson(const std::vector<Figure>& figures, const std::string& path);

}  // namespace engram::bench
