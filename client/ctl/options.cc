#include "client/ctl/options.h"

#include <CLI/CLI.hpp>

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

void Options::Number(const std::string& names, std::uint16_t* value, const std::string& help) {
  app_->add_option(names, *value, help);
}

void Options::Number(const std::string& names, std::uint32_t* value, const std::string& help) {
  app_->add_option(names, *value, help);
}

void Options::Number(const std::string& names, std::uint64_t* value, const std::string& help) {
  app_->add_option(names, *value, help);
}

void Options::Number(const std::string& names, std::int64_t* value, const std::string& help) {
  app_->add_option(names, *value, help);
}

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
