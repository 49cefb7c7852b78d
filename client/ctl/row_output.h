// Rows as `read` prints them: hexadecimal lines, a JSON document, or a NumPy file. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace engram::ctl {

struct RowOutput {
  std::string table;
  std::vector<std::uint64_t> numbers;  // as the user counts them, one a row
  std::uint32_t row_bytes = 0;
  std::span<const std::byte> bytes;  // numbers.size() rows
};

// "ROW  HEX", one line a row.
void WriteHex(const RowOutput& rows, std::ostream& out);
std::string RowsAsJson(const RowOutput& rows);
// NumPy format 1.0: uint8, shape (rows, row_bytes), C order.
void WriteNpy(const RowOutput& rows, std::ostream& out);

}  // namespace engram::ctl
