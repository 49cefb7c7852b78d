#include "engram/settings/settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engram/settings/nearest.h"
#include "engram/settings/units.h"

namespace engram {
namespace {

std::string FlagOf(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin() + 2, flag.end(), '_', '-');
  return flag;
}

std::string VariableOf(const std::string& key) {
  std::string variable = "ENGRAM_" + key;
  for (char& c : variable) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return variable;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& known,
                       std::string_view otherwise) {
  const std::string nearest = NearestWord(word, known);
  return nearest.empty() ? std::string(otherwise) : absl::StrCat("did you mean ", nearest, "?");
}

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> items;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    item = absl::StripAsciiWhitespace(item);
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

absl::StatusOr<std::int64_t> ParseBool(const std::string& text) {
  if (text == "true" || text == "yes" || text == "1") return 1;
  if (text == "false" || text == "no" || text == "0") return 0;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is neither true nor false; write one of them"));
}

absl::StatusOr<std::int64_t> ParseNumber(SettingType type, const std::string& text) {
  if (type == SettingType::kInteger) return ParseInteger(text);
  if (type == SettingType::kBool) return ParseBool(text);
  if (type == SettingType::kSize) {
    const absl::StatusOr<std::uint64_t> size = ParseSize(text);
    if (!size.ok()) return size.status();
    return static_cast<std::int64_t>(*size);
  }
  const absl::StatusOr<Duration> duration = ParseDuration(text);
  if (!duration.ok()) return duration.status();
  return duration->count();
}

bool IsNumber(SettingType type) {
  return type == SettingType::kInteger || type == SettingType::kSize ||
         type == SettingType::kDuration || type == SettingType::kBool;
}

absl::Status CheckLimits(const Setting& setting, std::int64_t value) {
  const bool low = !setting.min.empty() && value < *ParseNumber(setting.type, setting.min);
  const bool high = !setting.max.empty() && value > *ParseNumber(setting.type, setting.max);
  if (!low && !high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(low ? "it is below the least value, " : "it is above the largest value, ",
                   low ? setting.min : setting.max, "; change it"));
}

}  // namespace

Setting Setting::Text(std::string key, std::string value, std::string help) {
  return {std::move(key), SettingType::kText, std::move(value), std::move(help), {}, "", ""};
}

Setting Setting::Bool(std::string key, std::string value, std::string help) {
  return {std::move(key), SettingType::kBool, std::move(value), std::move(help), {}, "", ""};
}

Setting Setting::List(std::string key, std::string value, std::string help) {
  return {std::move(key), SettingType::kList, std::move(value), std::move(help), {}, "", ""};
}

Setting Setting::Choice(std::string key, std::string value, std::string help,
                        std::vector<std::string> choices) {
  return {std::move(key),
          SettingType::kEnum,
          std::move(value),
          std::move(help),
          std::move(choices),
          "",
          ""};
}

Setting Setting::Integer(std::string key, std::string value, std::string help, std::string min,
                         std::string max) {
  return {std::move(key), SettingType::kInteger, std::move(value), std::move(help), {},
          std::move(min), std::move(max)};
}

Setting Setting::Size(std::string key, std::string value, std::string help, std::string min,
                      std::string max) {
  return {std::move(key), SettingType::kSize, std::move(value), std::move(help), {},
          std::move(min), std::move(max)};
}

Setting Setting::Time(std::string key, std::string value, std::string help, std::string min,
                      std::string max) {
  return {std::move(key), SettingType::kDuration, std::move(value), std::move(help), {},
          std::move(min), std::move(max)};
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Applies the sources from the weakest to the strongest.
class SettingsLoader {
 public:
  explicit SettingsLoader(const Program& program) : program_(program) {
    for (const Setting& setting : program.settings) {
      settings_.order_.push_back(setting.key);
      keys_.push_back(setting.key);
      flags_.push_back(FlagOf(setting.key));
    }
    flags_.insert(flags_.end(),
                  {"--config", "--check-config", "--print-config", "--help", "--version"});
  }

  absl::Status Defaults() {
    for (const Setting& setting : program_.settings) {
      absl::Status set = Set(setting, setting.value, Settings::Origin::kDefault, "default");
      if (!set.ok()) return set;
    }
    return absl::OkStatus();
  }

  absl::Status File(const std::string& path) {
    try {
      return Document(YAML::LoadFile(path), path);
    } catch (const YAML::BadFile&) {
      return absl::InvalidArgumentError(
          absl::StrCat("config file ", path, " cannot be read; check that it exists and its mode"));
    } catch (const YAML::Exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("config file ", path, " is not YAML: line ",
                                                     error.mark.line + 1, ": ", error.msg,
                                                     "; correct it"));
    }
  }

  absl::Status Variables(const Environment& environment) {
    for (const Setting& setting : program_.settings) {
      const std::string name = VariableOf(setting.key);
      const std::optional<std::string> value = environment(name);
      if (!value) continue;
      absl::Status set = Set(setting, *value, Settings::Origin::kEnvironment, name);
      if (!set.ok()) return set;
    }
    return absl::OkStatus();
  }

  // Takes the flags apart; they are applied by ApplyFlags, after the file they may name is read.
  absl::Status ReadFlags(const std::vector<std::string>& arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument.rfind("--", 0) != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "argument \"", argument, "\" is not a flag; see ", program_.name, " --help"));
      }
      const std::size_t equals = argument.find('=');
      const std::string flag = argument.substr(0, equals);
      const Setting* setting = ByFlag(flag);
      if (setting == nullptr && flag != "--config") {
        return absl::InvalidArgumentError(
            absl::StrCat("flag ", flag, " is unknown; ",
                         DidYouMean(flag, flags_, "see " + program_.name + " --help")));
      }
      std::string value;
      if (equals != std::string::npos) {
        value = argument.substr(equals + 1);
      } else if (setting != nullptr && setting->type == SettingType::kBool) {
        const bool word = i + 1 < arguments.size() && ParseBool(arguments[i + 1]).ok();
        value = word ? arguments[++i] : "true";
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("flag ", flag, " has no value; give one, as in ", flag, "=VALUE"));
      }
      if (setting == nullptr) {
        config_ = value;
      } else {
        KeepFlag(*setting, value);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ApplyFlags() {
    for (const Setting& setting : program_.settings) {
      const auto it = given_.find(setting.key);
      if (it == given_.end()) continue;
      absl::Status set = Set(setting, it->second, Settings::Origin::kFlag, FlagOf(setting.key));
      if (!set.ok()) return set;
    }
    return absl::OkStatus();
  }

  const std::optional<std::string>& config() const { return config_; }
  Settings Take() { return std::move(settings_); }

 private:
  const Setting* ByFlag(const std::string& flag) const {
    for (std::size_t i = 0; i < program_.settings.size(); ++i) {
      if (flags_[i] == flag) return &program_.settings[i];
    }
    return nullptr;
  }

  // A list flag may be repeated; of any other flag the last one counts.
  void KeepFlag(const Setting& setting, const std::string& value) {
    std::string& kept = given_[setting.key];
    kept = setting.type == SettingType::kList && !kept.empty() ? absl::StrCat(kept, ",", value)
                                                               : value;
  }

  absl::Status Document(const YAML::Node& document, const std::string& path) {
    if (document.IsNull()) return absl::OkStatus();
    if (!document.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config file ", path, " is not a list of \"key: value\" lines; correct it"));
    }
    for (const auto& pair : document) {
      const auto key = pair.first.as<std::string>();
      const auto at = std::find(keys_.begin(), keys_.end(), key);
      if (at == keys_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("config file ", path, ": key ", key, " is unknown; ",
                         DidYouMean(key, keys_, "see " + program_.name + " --help")));
      }
      const Setting& setting = program_.settings[static_cast<std::size_t>(at - keys_.begin())];
      absl::Status set = FromFile(setting, pair.second, path);
      if (!set.ok()) return set;
    }
    return absl::OkStatus();
  }

  absl::Status FromFile(const Setting& setting, const YAML::Node& node, const std::string& path) {
    if (node.IsSequence() && setting.type == SettingType::kList) {
      return Set(setting, absl::StrJoin(node.as<std::vector<std::string>>(), ","),
                 Settings::Origin::kFile, path);
    }
    if (!node.IsScalar() && !node.IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat("config file ", path, ": key ", setting.key,
                                                     " needs one plain value; write one"));
    }
    return Set(setting, node.IsNull() ? "" : node.Scalar(), Settings::Origin::kFile, path);
  }

  absl::Status Set(const Setting& setting, const std::string& text, Settings::Origin origin,
                   const std::string& where) {
    Settings::Entry entry{setting.type, text, 0, {}, origin, where};
    absl::Status status;
    if (setting.type == SettingType::kList) {
      entry.items = SplitList(text);
    } else if (setting.type == SettingType::kEnum) {
      if (std::find(setting.choices.begin(), setting.choices.end(), text) ==
          setting.choices.end()) {
        status = absl::InvalidArgumentError(
            absl::StrCat("use one of ", absl::StrJoin(setting.choices, ", ")));
      }
    } else if (IsNumber(setting.type)) {
      const absl::StatusOr<std::int64_t> number = ParseNumber(setting.type, text);
      status = number.ok() ? CheckLimits(setting, *number) : number.status();
      if (number.ok()) entry.number = *number;
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("setting ", setting.key, " = \"", text,
                                                     "\" (from ", where, "): ", status.message()));
    }
    settings_.entries_[setting.key] = std::move(entry);
    return absl::OkStatus();
  }

  const Program& program_;
  std::vector<std::string> keys_;
  std::vector<std::string> flags_;  // the first ones in the order of program_.settings
  std::map<std::string, std::string> given_;
  std::optional<std::string> config_;
  Settings settings_;
};

const Settings::Entry& Settings::Find(std::string_view key, SettingType type) const {
  const auto it = entries_.find(key);
  const bool text = type == SettingType::kText;
  if (it == entries_.end() ||
      (it->second.type != type && !(text && it->second.type == SettingType::kEnum))) {
    std::abort();  // the program asks for a setting that its own list does not have
  }
  return it->second;
}

const std::string& Settings::Text(std::string_view key) const {
  return Find(key, SettingType::kText).text;
}
bool Settings::Bool(std::string_view key) const {
  return Find(key, SettingType::kBool).number != 0;
}
std::int64_t Settings::Integer(std::string_view key) const {
  return Find(key, SettingType::kInteger).number;
}
std::uint64_t Settings::Size(std::string_view key) const {
  return static_cast<std::uint64_t>(Find(key, SettingType::kSize).number);
}
Duration Settings::Time(std::string_view key) const {
  return Duration(Find(key, SettingType::kDuration).number);
}
const std::vector<std::string>& Settings::List(std::string_view key) const {
  return Find(key, SettingType::kList).items;
}

Settings::Origin Settings::OriginOf(std::string_view key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? Origin::kDefault : it->second.origin;
}

std::string Settings::Print() const {
  std::string out;
  for (const std::string& key : order_) {
    const Entry& entry = entries_.find(key)->second;
    YAML::Emitter value;
    if (entry.type == SettingType::kList) {
      value << YAML::Flow << entry.items;
    } else if (IsNumber(entry.type)) {
      value << entry.text;
    } else {
      value << YAML::DoubleQuoted << entry.text;
    }
    absl::StrAppend(&out, key, ": ", value.c_str(), "  # ", entry.where, "\n");
  }
  return out;
}

absl::StatusOr<Settings> LoadSettings(const Program& program,
                                      const std::vector<std::string>& arguments,
                                      const Environment& environment) {
  SettingsLoader loader(program);
  absl::Status status = loader.Defaults();
  if (status.ok()) status = loader.ReadFlags(arguments);
  const auto file = loader.config() ? loader.config() : environment("ENGRAM_CONFIG");
  if (status.ok() && file && !file->empty()) status = loader.File(*file);
  if (status.ok()) status = loader.Variables(environment);
  if (status.ok()) status = loader.ApplyFlags();
  if (!status.ok()) return status;
  return loader.Take();
}

namespace {

std::string_view TypeName(SettingType type) {
  switch (type) {
    case SettingType::kText: return "TEXT";
    case SettingType::kBool: return "true|false";
    case SettingType::kInteger: return "NUMBER";
    case SettingType::kSize: return "SIZE";
    case SettingType::kDuration: return "DURATION";
    case SettingType::kList: return "A,B,...";
    case SettingType::kEnum: return "";
  }
  return "";
}

void PrintHelp(const Program& program, std::ostream& out) {
  out << program.name << ": " << program.about << "\n\n"
      << "usage: " << program.name << " [--config FILE] [flags]\n\n"
      << "  --config FILE     YAML file of settings (also ENGRAM_CONFIG)\n"
      << "  --check-config    check the settings and exit: 0 good, 2 not\n"
      << "  --print-config    print every setting in force and where it comes from\n"
      << "  --version         print the version\n\n"
      << "Settings. Each is a flag, a key of the file (key_name) and a variable "
         "(ENGRAM_KEY_NAME);\n"
      << "flag > environment > file > default.\n\n";
  for (const Setting& setting : program.settings) {
    const std::string form = setting.type == SettingType::kEnum
                                 ? absl::StrJoin(setting.choices, "|")
                                 : std::string(TypeName(setting.type));
    out << "  " << FlagOf(setting.key) << " " << form << "\n      " << setting.help;
    if (!setting.value.empty()) out << " [" << setting.value << "]";
    out << "\n";
  }
}

}  // namespace

std::variant<Settings, int> LoadSettingsOrExit(const Program& program, int argc, char** argv,
                                               std::ostream& out, std::ostream& err) {
  bool check = false, print = false;
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      PrintHelp(program, out);
      return 0;
    }
    if (argument == "--version") {
      out << program.name << " " << program.version << "\n";
      return 0;
    }
    check |= argument == "--check-config";
    print |= argument == "--print-config";
    if (argument != "--check-config" && argument != "--print-config") arguments.push_back(argument);
  }
  absl::StatusOr<Settings> settings = LoadSettings(program, arguments, FromEnvironment);
  if (!settings.ok()) {
    err << program.name << ": " << settings.status().message() << "\n";
    return 2;
  }
  if (check && program.check) {
    if (const absl::Status good = program.check(*settings); !good.ok()) {
      err << program.name << ": " << good.message() << "\n";
      return 2;
    }
  }
  if (print) out << settings->Print();
  if (print || check) return 0;
  return *std::move(settings);
}

}  // namespace engram
