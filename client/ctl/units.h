// Ages, times and counts as people read them; sizes are engram/settings/units.h. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace engram::ctl {

// kubectl's ages: "8s", "5m", "3h", "12d"; "-" for a time that is not known (0).
std::string HumanAge(std::int64_t since_unix_ms, std::int64_t now_unix_ms);
// "2026-11-29 16:05:12 UTC"; "-" for 0.
std::string HumanTime(std::int64_t unix_ms);
// "384,006,168".
std::string HumanCount(std::uint64_t count);
std::int64_t NowUnixMs();

}  // namespace engram::ctl
