#include "client/ctl/printer.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "client/ctl/outcome.h"
#include "client/ctl/words.h"

namespace engram::ctl {
namespace {

using OrderedJson = nlohmann::ordered_json;

// True when a plain YAML scalar of this text would not be read back as this string.
bool NeedsQuotes(const std::string& text) {
  if (text.empty() || text == "~") return true;
  if (text.find_first_of("\n\"'#:{}[],&*!|>%@`\\") != std::string::npos) return true;
  if (text.front() == ' ' || text.back() == ' ' || text.front() == '-' || text.front() == '?') {
    return true;
  }
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return true;
  }
  return lower.find_first_not_of("0123456789+-.exabcdf_") == std::string::npos;
}

void EmitYaml(YAML::Emitter& yaml, const OrderedJson& value) {
  if (value.is_object()) {
    if (value.empty()) yaml << YAML::Flow;
    yaml << YAML::BeginMap;
    for (const auto& [key, item] : value.items()) {
      yaml << YAML::Key << key << YAML::Value;
      EmitYaml(yaml, item);
    }
    yaml << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) yaml << YAML::Flow;
    yaml << YAML::BeginSeq;
    for (const OrderedJson& item : value) EmitYaml(yaml, item);
    yaml << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (NeedsQuotes(text)) yaml << YAML::DoubleQuoted;
    yaml << text;
  } else if (value.is_null()) {
    yaml << YAML::Null;
  } else {
    yaml << value.dump();
  }
}

}  // namespace

std::string_view Name(Format format) {
  switch (format) {
    case Format::kTable: return "table";
    case Format::kWide: return "wide";
    case Format::kJson: return "json";
    case Format::kYaml: return "yaml";
    case Format::kName: return "name";
    case Format::kHex: return "hex";
    case Format::kNpy: return "npy";
  }
  return "table";
}

absl::StatusOr<Format> ParseFormat(std::string_view text, const std::vector<Format>& allowed) {
  if (text.empty()) return allowed.front();
  std::vector<std::string> names;
  for (Format format : allowed) {
    if (text == Name(format)) return format;
    names.emplace_back(Name(format));
  }
  return UsageError("-o: " + UnknownWord("output format", text, names));
}

TextTable::TextTable(std::vector<Heading> headings) : headings_(std::move(headings)) {
  for (const Heading& heading : headings_) widths_.push_back(heading.title.size());
}

void TextTable::Add(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) cells[i] = "-";
    widths_[i] = std::max(widths_[i], cells[i].size());
  }
  rows_.push_back(std::move(cells));
}

void TextTable::PrintLine(std::ostream& out, bool wide, const Row& cells) const {
  std::string line;
  for (std::size_t i = 0; i < headings_.size(); ++i) {
    if (headings_[i].wide && !wide) continue;
    if (!line.empty()) line += "  ";
    const std::string pad(widths_[i] - cells[i].size(), ' ');
    line += headings_[i].right ? pad + cells[i] : cells[i] + pad;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

void TextTable::PrintHeading(std::ostream& out, bool wide) const {
  Row titles;
  for (const Heading& heading : headings_) titles.push_back(heading.title);
  PrintLine(out, wide, titles);
}

void TextTable::Print(std::ostream& out, bool wide) const {
  PrintHeading(out, wide);
  for (const Row& row : rows_) PrintLine(out, wide, row);
}

void TextTable::PrintNew(std::ostream& out, bool wide, std::set<std::string>* seen) const {
  if (seen->empty() && !rows_.empty()) PrintHeading(out, wide);
  for (const Row& row : rows_) {
    const Row but_age(row.begin(), row.end() - 1);
    if (seen->insert(absl::StrJoin(but_age, "\n")).second) PrintLine(out, wide, row);
  }
}

void FieldList::Print(std::ostream& out) const {
  std::size_t width = 0;
  for (const Field& field : fields_) width = std::max(width, field.key.size());
  for (const Field& field : fields_) {
    out << field.key << ':' << std::string(width - field.key.size() + 2, ' ')
        << (field.value.empty() ? "-" : field.value) << '\n';
  }
}

std::string JsonToYaml(const std::string& json) {
  YAML::Emitter yaml;
  EmitYaml(yaml, OrderedJson::parse(json));
  return std::string(yaml.c_str()) + "\n";
}

std::string PrettyJson(const std::string& json) { return OrderedJson::parse(json).dump(2) + "\n"; }

}  // namespace engram::ctl
