// The words and options that one verb takes, declared by name and bound to variables that outlive
// the parsing. A thin face of the command-line parser, so that a verb's file does not include it
// (it is by far the most expensive header here). Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace engram::ctl {

class Options {
 public:
  explicit Options(CLI::App& app) : app_(&app) {}

  void Word(const std::string& name, std::string* value, const std::string& help);
  void OptionalWord(const std::string& name, std::string* value, const std::string& help);
  // `names` as "--name" or "-n,--name".
  void Text(const std::string& names, std::string* value, const std::string& help);
  void RequiredText(const std::string& names, std::string* value, const std::string& help);
  // A number that is not one, or lies outside of `least` to `most`, is a usage error.
  template <class Value>
  void Number(const std::string& names, Value* value, const std::string& help,
              Value least = std::numeric_limits<Value>::min(),
              Value most = std::numeric_limits<Value>::max());
  void Flag(const std::string& names, bool* value, const std::string& help);
  // One of them must be given.
  Options Subcommand(const std::string& name, const std::string& summary);

  // After parsing: was this subcommand chosen, was this option given?
  bool Chosen() const;
  bool Given(const std::string& name) const;

 private:
  CLI::App* app_;
};

}  // namespace engram::ctl
