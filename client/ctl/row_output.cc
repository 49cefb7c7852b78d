#include "client/ctl/row_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace engram::ctl {
namespace {

std::string HexOf(const RowOutput& rows, std::size_t i) {
  const char* row = reinterpret_cast<const char*>(rows.bytes.data()) + i * rows.row_bytes;
  return absl::BytesToHexString(absl::string_view(row, rows.row_bytes));
}

}  // namespace

void WriteHex(const RowOutput& rows, std::ostream& out) {
  std::size_t width = 0;
  for (std::uint64_t number : rows.numbers) {
    width = std::max(width, absl::StrCat(number).size());
  }
  for (std::size_t i = 0; i < rows.numbers.size(); ++i) {
    const std::string number = absl::StrCat(rows.numbers[i]);
    out << std::string(width - number.size(), ' ') << number << "  " << HexOf(rows, i) << '\n';
  }
}

std::string RowsAsJson(const RowOutput& rows) {
  nlohmann::ordered_json json = {{"table", rows.table},
                                 {"rowBytes", rows.row_bytes},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < rows.numbers.size(); ++i) {
    json["rows"].push_back({{"row", absl::StrCat(rows.numbers[i])}, {"hex", HexOf(rows, i)}});
  }
  return json.dump();
}

void WriteNpy(const RowOutput& rows, std::ostream& out) {
  std::string header = absl::StrCat("{'descr': '|u1', 'fortran_order': False, 'shape': (",
                                    rows.numbers.size(), ", ", rows.row_bytes, "), }");
  // Magic (6), version (2), length (2) and header together are a multiple of 64 bytes.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header.push_back('\n');
  out << "\x93NUMPY" << '\x01' << '\x00' << static_cast<char>(header.size() & 255)
      << static_cast<char>(header.size() >> 8) << header;
  out.write(reinterpret_cast<const char*>(rows.bytes.data()),
            static_cast<std::streamsize>(rows.bytes.size()));
}

}  // namespace engram::ctl
