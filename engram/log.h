// What a daemon tells the people who run it: one line on standard error, with the time in UTC,
//   2026-11-29T16:42:40.123Z engram-poolserver joined as incarnation 7
// For events, never per row, batch or message. Thread-safe: lines do not mix.
#pragma once

#include <string_view>

namespace engram {

// The program's name in every line; called once, at the start of main.
void SetLogName(std::string_view program);
void Log(std::string_view line);

}  // namespace engram
