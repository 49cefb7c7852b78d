// The version of this build, "0.1.0": what every program prints and sends. Thread-safe.
#pragma once

#include <string_view>

namespace engram {

std::string_view Version();

}  // namespace engram
