// Runs seeds in processes of their own, so that a broken invariant that ends the program ends one
// seed, on every processor. Thread-confined: call from the owner thread only; no other thread may
// run.
#pragma once

#include <functional>
#include <string>

#include "tests/simulation/scenario.h"

namespace engram::simulation {

struct SeedReport {
  std::uint64_t seed = 0;
  Results results;
  std::string failure;  // the first one; empty: none
};

// One history in a process of its own, which says nothing.
SeedReport RunAlone(const ScenarioOptions& options);
// `like` with the seeds [first, first + count), `jobs` at a time. `quiet`: what they
// print is thrown away. `done` is called for each.
void RunSeeds(const ScenarioOptions& like, std::uint64_t first, std::uint64_t count,
              std::size_t jobs, bool quiet, const std::function<void(const SeedReport&)>& done);

}  // namespace engram::simulation
