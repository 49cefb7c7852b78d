// A failing history made smaller: shorter trouble, fewer kinds of it, fewer tables, clients and
// nodes, as long as it fails. And the words that name a history on a command line.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/simulation/scenario.h"

namespace engram::simulation {

// REQUIRES: fails(options). `fails` is asked at most `most` times.
ScenarioOptions Shrink(ScenarioOptions options,
                       const std::function<bool(const ScenarioOptions&)>& fails, std::size_t most);

// "--seed 7 --without crash-node,move --trouble_ms 4500 --tables 1".
std::string Arguments(const ScenarioOptions& options);
// Takes one of those; false when it is none, or its value means nothing.
bool TakeArgument(const std::string& name, const std::string& value, ScenarioOptions* options);

}  // namespace engram::simulation
