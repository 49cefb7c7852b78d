#include "engram/settings/nearest.h"

#include <algorithm>
#include <vector>

namespace engram {
namespace {

constexpr std::size_t kMaxWord = 128;

// Optimal string alignment distance, three rows at a time.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string NearestWord(std::string_view word, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = 0;
  if (word.size() > kMaxWord) return best;
  for (const std::string& candidate : known) {
    const std::size_t distance = Distance(word, candidate);
    if (distance * 2 > std::max(candidate.size(), word.size())) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace engram
