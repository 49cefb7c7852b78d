#include "engram/settings/units.h"

#include <array>
#include <limits>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace engram {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::array<Unit, 5> kSizeUnits = {{{"TiB", std::uint64_t{1} << 40},
                                             {"GiB", std::uint64_t{1} << 30},
                                             {"MiB", std::uint64_t{1} << 20},
                                             {"KiB", std::uint64_t{1} << 10},
                                             {"B", 1}}};
constexpr std::array<Unit, 6> kDurationUnits = {{{"h", 3'600'000'000'000},
                                                 {"m", 60'000'000'000},
                                                 {"s", 1'000'000'000},
                                                 {"ms", 1'000'000},
                                                 {"us", 1'000},
                                                 {"ns", 1}}};

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The digits of a number without its point, and the power of ten that stands below them.
struct Decimal {
  unsigned __int128 digits = 0;
  unsigned __int128 scale = 1;
};

std::optional<Decimal> ParseDecimal(std::string_view text) {
  Decimal out;
  bool point = false, any = false;
  if (text.size() > 24) return std::nullopt;
  for (char c : text) {
    if (c == '.' && !point && any) {
      point = true;
      continue;
    }
    if (!IsDigit(c)) return std::nullopt;
    any = true;
    out.digits = out.digits * 10 + static_cast<unsigned>(c - '0');
    if (point) out.scale *= 10;
  }
  return any && text.back() != '.' ? std::optional<Decimal>(out) : std::nullopt;
}

std::optional<std::uint64_t> Factor(std::string_view unit, std::span<const Unit> units) {
  for (const Unit& known : units) {
    if (known.name == unit) return known.factor;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Scale(std::string_view number, std::uint64_t factor,
                                   std::uint64_t limit) {
  const std::optional<Decimal> decimal = ParseDecimal(number);
  if (!decimal) return std::nullopt;
  // 24 digits and the largest factor stay below 2^128.
  const unsigned __int128 product = decimal->digits * factor;
  if (product % decimal->scale != 0 || product / decimal->scale > limit) return std::nullopt;
  return static_cast<std::uint64_t>(product / decimal->scale);
}

std::string FormatExact(std::uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value >= unit.factor && value % unit.factor == 0) {
      return absl::StrCat(value / unit.factor, Abseil(unit.name));
    }
  }
  return absl::StrCat("0", Abseil(units.back().name));
}

std::size_t NumberLength(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && (IsDigit(text[length]) || text[length] == '.')) ++length;
  return length;
}

}  // namespace

absl::StatusOr<std::uint64_t> ParseSize(std::string_view text) {
  const std::size_t length = NumberLength(text);
  const std::string_view unit = text.substr(length);
  const auto factor = unit.empty() ? std::optional<std::uint64_t>(1) : Factor(unit, kSizeUnits);
  if (factor) {
    const auto bytes =
        Scale(text.substr(0, length), *factor, std::numeric_limits<std::int64_t>::max());
    if (bytes) return *bytes;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Abseil(text),
                   "\" is not a size; write a number and KiB, MiB, GiB or TiB, as in 64MiB"));
}

absl::StatusOr<Duration> ParseDuration(std::string_view text) {
  if (text == "0") return Duration(0);
  const std::size_t length = NumberLength(text);
  const auto factor = Factor(text.substr(length), kDurationUnits);
  if (factor) {
    const auto count =
        Scale(text.substr(0, length), *factor, std::numeric_limits<std::int64_t>::max());
    if (count) return Duration(static_cast<std::int64_t>(*count));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", Abseil(text), "\" is not a duration; write a number and us, ms, s, m or h, as in 10s"));
}

absl::StatusOr<std::int64_t> ParseInteger(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  const auto magnitude = digits.find('.') == std::string_view::npos
                             ? Scale(digits, 1, std::numeric_limits<std::int64_t>::max())
                             : std::nullopt;
  if (!magnitude) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Abseil(text), "\" is not a whole number; write one, as in 42"));
  }
  const auto value = static_cast<std::int64_t>(*magnitude);
  return negative ? -value : value;
}

std::string FormatSize(std::uint64_t bytes) { return FormatExact(bytes, kSizeUnits); }

std::string FormatDuration(Duration duration) {
  const bool negative = duration.count() < 0;
  const auto magnitude =
      static_cast<std::uint64_t>(negative ? -duration.count() : duration.count());
  return absl::StrCat(negative ? "-" : "",
                      magnitude == 0 ? "0s" : FormatExact(magnitude, kDurationUnits));
}

std::string RoundSize(std::uint64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    if (bytes < unit.factor || unit.factor == 1) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.factor);
    return value < 1000 ? absl::StrFormat("%.1f%s", value, Abseil(unit.name))
                        : absl::StrFormat("%.0f%s", value, Abseil(unit.name));
  }
  return absl::StrCat(bytes, "B");
}

}  // namespace engram
