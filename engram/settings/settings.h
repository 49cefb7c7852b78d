// The settings of a daemon: one declarative list, read from one YAML file (`--config FILE`), from
// `ENGRAM_KEY_NAME` variables and from `--key-name` flags; flag > environment > file > default.
// A key is written key_name in the file. Unknown keys and flags are refused with the nearest known
// name. Not for engramctl's verbs, which have no file; units.h and nearest.h serve both.
//
// After LoadSettings a Settings is immutable: Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/clock.h"

namespace engram {

enum class SettingType { kText, kBool, kInteger, kSize, kDuration, kList, kEnum };

struct Setting {
  std::string key;  // snake_case
  SettingType type = SettingType::kText;
  std::string value;  // the default, as a user would write it; lists are comma-separated
  std::string help;   // one sentence
  std::vector<std::string> choices;  // kEnum
  std::string min, max;              // kInteger, kSize, kDuration; empty = no limit

  // One of each type; the arguments as named above.
  static Setting Text(std::string key, std::string value, std::string help);
  static Setting Bool(std::string key, std::string value, std::string help);
  static Setting List(std::string key, std::string value, std::string help);
  static Setting Choice(std::string key, std::string value, std::string help,
                        std::vector<std::string> choices);
  static Setting Integer(std::string key, std::string value, std::string help, std::string min = "",
                         std::string max = "");
  static Setting Size(std::string key, std::string value, std::string help, std::string min = "",
                      std::string max = "");
  static Setting Time(std::string key, std::string value, std::string help, std::string min = "",
                      std::string max = "");
};

class Settings;

struct Program {
  std::string name;   // "engram-placement"
  std::string about;  // one sentence for --help
  std::string version;
  std::vector<Setting> settings;
  // What --check-config looks at besides each setting by itself; may look at the machine.
  std::function<absl::Status(const Settings&)> check = nullptr;
};

// Returns the value of an environment variable, or nothing. Production: FromEnvironment.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> FromEnvironment(const std::string& name);

class Settings {
 public:
  enum class Origin { kDefault, kFile, kEnvironment, kFlag };

  // REQUIRES (all of them): `key` is in the program's list with that type.
  const std::string& Text(std::string_view key) const;  // kText and kEnum
  bool Bool(std::string_view key) const;
  std::int64_t Integer(std::string_view key) const;
  std::uint64_t Size(std::string_view key) const;
  Duration Time(std::string_view key) const;
  const std::vector<std::string>& List(std::string_view key) const;

  Origin OriginOf(std::string_view key) const;
  // "key: value  # from where", one line a key, in the order of the list; reads as the YAML file.
  std::string Print() const;

 private:
  friend class SettingsLoader;
  struct Entry {
    SettingType type = SettingType::kText;
    std::string text;
    std::int64_t number = 0;
    std::vector<std::string> items;
    Origin origin = Origin::kDefault;
    std::string where;  // file name, variable or flag
  };
  const Entry& Find(std::string_view key, SettingType type) const;

  std::vector<std::string> order_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// Reads every source. InvalidArgument names the key, the value, the limit and the next step.
// `arguments` are those after the program's name, without --help and its like.
// REQUIRES: defaults, min and max of `program` parse.
absl::StatusOr<Settings> LoadSettings(const Program& program,
                                      const std::vector<std::string>& arguments,
                                      const Environment& environment);

// What a daemon's main calls first. Serves --help, --version, --check-config and --print-config;
// returns the exit code (0, or 2 after an error on `err`) where the program is to end.
std::variant<Settings, int> LoadSettingsOrExit(const Program& program, int argc, char** argv,
                                               std::ostream& out, std::ostream& err);

}  // namespace engram
