#include "client/ctl/number_list.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/outcome.h"

namespace engram::ctl {
namespace {

template <class Number>
absl::StatusOr<std::vector<Number>> Parse(const std::string& option, const std::string& text,
                                          const char* range) {
  std::vector<Number> numbers;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    Number number = 0;
    if (!absl::SimpleAtoi(word, &number)) {
      return UsageError(absl::StrCat(option, ": entry ", numbers.size(), " is \"", word,
                                     "\"; it takes whole numbers from ", range,
                                     ", separated by commas"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> ParseTokens(const std::string& option,
                                                      const std::string& text) {
  return Parse<std::int64_t>(option, text, "0 to 9223372036854775807");
}

absl::StatusOr<std::vector<std::uint64_t>> ParseRows(const std::string& option,
                                                     const std::string& text) {
  return Parse<std::uint64_t>(option, text, "0 to 18446744073709551615");
}

}  // namespace engram::ctl
