// Sizes and durations as people write them: 64MiB, 1.5GiB, 50us, 10s. What the settings of the
// daemons, engramctl and the messages for people share. Pure functions: Thread-safe.
//
// A size is a number and one of B KiB MiB GiB TiB; a bare number is bytes. A duration is a number
// and one of ns us ms s m h; only 0 needs no unit. The number may have a decimal fraction as long
// as the result is whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engram/clock.h"

namespace engram {

// InvalidArgument says what was read and which forms are known; OutOfRange becomes InvalidArgument
// too.
absl::StatusOr<std::uint64_t> ParseSize(std::string_view text);
absl::StatusOr<Duration> ParseDuration(std::string_view text);
// Whole decimal numbers, with an optional minus sign.
absl::StatusOr<std::int64_t> ParseInteger(std::string_view text);

// Exact, in the largest unit that needs no fraction: 65536 -> "64KiB", 1000 -> "1000B". Parses back
// to the same value.
std::string FormatSize(std::uint64_t bytes);
std::string FormatDuration(Duration duration);
// For people: at most three digits and a fraction, "189.4GiB". Does not parse back exactly.
std::string RoundSize(std::uint64_t bytes);

}  // namespace engram
