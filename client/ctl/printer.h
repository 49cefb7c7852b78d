// How objects are printed: a table for people (NAME first, AGE last, about 80 columns), or JSON,
// YAML or bare names for programs. Knows nothing of gRPC: objects come as rows of cells and as JSON
// text. Thread-compatible.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace engram::ctl {

enum class Format { kTable, kWide, kJson, kYaml, kName, kHex, kNpy };

// UsageError names the formats of this command. `text` empty gives `allowed[0]`.
absl::StatusOr<Format> ParseFormat(std::string_view text, const std::vector<Format>& allowed);
std::string_view Name(Format format);

// A column of a table. Wide columns are shown with `-o wide` only.
struct Heading {
  std::string title;
  bool wide = false;
  bool right = false;  // numbers
};

class TextTable {
 public:
  explicit TextTable(std::vector<Heading> headings);

  // REQUIRES: as many cells as headings.
  void Add(std::vector<std::string> cells);
  std::size_t rows() const { return rows_.size(); }
  // No line ends in spaces. Empty cells print as "-".
  void Print(std::ostream& out, bool wide) const;
  // Prints only the rows that `seen` does not hold (without their last cell, the age) and adds
  // them; the heading too if nothing was seen yet.
  void PrintNew(std::ostream& out, bool wide, std::set<std::string>* seen) const;

 private:
  using Row = std::vector<std::string>;
  void PrintHeading(std::ostream& out, bool wide) const;
  void PrintLine(std::ostream& out, bool wide, const Row& cells) const;

  std::vector<Heading> headings_;
  std::vector<std::size_t> widths_;
  std::vector<Row> rows_;
};

// "Key:   value" lines of `describe`, values lined up. A nested block is indented under its key.
class FieldList {
 public:
  void Add(std::string key, std::string value) {
    fields_.push_back({std::move(key), std::move(value)});
  }
  void Print(std::ostream& out) const;

 private:
  struct Field {
    std::string key, value;
  };
  std::vector<Field> fields_;
};

// The same document as YAML; key order kept, strings that YAML would read as something else quoted.
std::string JsonToYaml(const std::string& json);
// Indented JSON, keys in their order, one newline at the end.
std::string PrettyJson(const std::string& json);

}  // namespace engram::ctl
