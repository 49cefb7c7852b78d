// Which seeds the tests of the simulation run: ENGRAM_SIM_SEED=N only that one, ENGRAM_SIM_SEEDS=N
// so many instead of a test's own number. Thread-compatible.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace engram::simulation {

struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t last = 0;
};

inline Seeds SeedsToRun(std::uint64_t count) {
  if (const char* one = std::getenv("ENGRAM_SIM_SEED")) {
    const std::uint64_t seed = std::strtoull(one, nullptr, 10);
    return {seed, seed};
  }
  if (const char* many = std::getenv("ENGRAM_SIM_SEEDS")) {
    count = std::strtoull(many, nullptr, 10);
  }
  return {1, count};
}

}  // namespace engram::simulation
