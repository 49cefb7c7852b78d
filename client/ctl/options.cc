#include "client/ctl/options.h"

#include <CLI/CLI.hpp>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace engram::ctl {

void Options::Word(const std::string& name, std::string* value, const std::string& help) {
  app_->add_option(name, *value, help)->required();
}

void Options::OptionalWord(const std::string& name, std::string* value, const std::string& help) {
  app_->add_option(name, *value, help);
}

void Options::Text(const std::string& names, std::string* value, const std::string& help) {
  app_->add_option(names, *value, help);
}

void Options::RequiredText(const std::string& names, std::string* value, const std::string& help) {
  app_->add_option(names, *value, help)->required();
}

template <class Value>
void Options::Number(const std::string& names, Value* value, const std::string& help, Value least,
                     Value most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::conditional_t<std::is_signed_v<Value>, std::int64_t, std::uint64_t> number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return "";
    return absl::StrCat("\"", text, "\" is not a whole number, ", least, " to ", most);
  };
  app_->add_option(names, *value, help)->check(CLI::Validator(check, ""));
}

template void Options::Number(const std::string&, std::uint16_t*, const std::string&, std::uint16_t,
                              std::uint16_t);
template void Options::Number(const std::string&, std::uint32_t*, const std::string&, std::uint32_t,
                              std::uint32_t);
template void Options::Number(const std::string&, std::uint64_t*, const std::string&, std::uint64_t,
                              std::uint64_t);
template void Options::Number(const std::string&, std::int64_t*, const std::string&, std::int64_t,
                              std::int64_t);

void Options::Flag(const std::string& names, bool* value, const std::string& help) {
  app_->add_flag(names, *value, help);
}

Options Options::Subcommand(const std::string& name, const std::string& summary) {
  app_->require_subcommand(1);
  return Options(*app_->add_subcommand(name, summary));
}

bool Options::Chosen() const { return app_->parsed(); }

bool Options::Given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace engram::ctl
