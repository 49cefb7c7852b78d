#include "client/ctl/units.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace engram::ctl {

std::string HumanAge(std::int64_t since_unix_ms, std::int64_t now_unix_ms) {
  if (since_unix_ms == 0) return "-";
  const std::int64_t seconds = std::max<std::int64_t>(0, (now_unix_ms - since_unix_ms) / 1000);
  if (seconds < 120) return absl::StrCat(seconds, "s");
  if (seconds < 2 * 3600) return absl::StrCat(seconds / 60, "m");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86400, "d");
}

std::string HumanTime(std::int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return std::string(text.data(), length);
}

std::string HumanCount(std::uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::int64_t NowUnixMs() {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  return duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace engram::ctl
