#include "engram/settings/units.h"

#include <gtest/gtest.h>

namespace engram {
namespace {

TEST(UnitsTest, ReadsSizes) {
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("17"), 17u);
  EXPECT_EQ(*ParseSize("64KiB"), 65536u);
  EXPECT_EQ(*ParseSize("1.5GiB"), (std::uint64_t{3} << 29));
  EXPECT_EQ(*ParseSize("2TiB"), (std::uint64_t{2} << 40));
}

TEST(UnitsTest, RefusesWhatIsNotASize) {
  for (const char* text : {"", "MiB", "-1MiB", "64MB", "64 MiB", "1e3", "0.1B", ".5MiB", "5.MiB",
                           "9999999TiB", "99999999999999999999999999999"}) {
    const auto size = ParseSize(text);
    EXPECT_EQ(size.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(size.status().message()).find("64MiB"), std::string::npos);
  }
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(*ParseDuration("0"), Duration(0));
  EXPECT_EQ(*ParseDuration("50us"), std::chrono::microseconds(50));
  EXPECT_EQ(*ParseDuration("2.5s"), std::chrono::milliseconds(2500));
  EXPECT_EQ(*ParseDuration("1m"), std::chrono::minutes(1));
  EXPECT_EQ(*ParseDuration("3h"), std::chrono::hours(3));
}

TEST(UnitsTest, RefusesWhatIsNotADuration) {
  for (const char* text : {"", "10", "s", "-1s", "1 s", "1d", "9999999999h"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(UnitsTest, WritesWhatItReads) {
  for (std::uint64_t bytes : {0ull, 1ull, 1000ull, 1024ull, 65536ull, 3ull << 29, 5ull << 40}) {
    EXPECT_EQ(*ParseSize(FormatSize(bytes)), bytes);
  }
  EXPECT_EQ(FormatSize(std::uint64_t{64} << 20), "64MiB");
  for (std::int64_t ns : {0ll, 1ll, 1500ll, 50'000ll, 1'000'000'000ll, 5'400'000'000'000ll}) {
    EXPECT_EQ(*ParseDuration(FormatDuration(Duration(ns))), Duration(ns));
  }
  EXPECT_EQ(FormatDuration(std::chrono::minutes(90)), "90m");
  EXPECT_EQ(RoundSize(203'400'000'000), "189.4GiB");
  EXPECT_EQ(RoundSize(12), "12B");
}

TEST(UnitsTest, ReadsWholeNumbers) {
  EXPECT_EQ(*ParseInteger("-42"), -42);
  for (const char* text : {"", "-", "1.0", "0x10", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInteger(text).ok()) << text;
  }
}

}  // namespace
}  // namespace engram
