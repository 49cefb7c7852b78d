// A checkpoint directory as the source of one table: what the table is, and where in which file the
// bytes of any rows lie. A node reads the extents itself (direct, in parallel); ReadRows is the
// simple way for programs that need few rows. Opening reads the small files and the headers only.
// Immutable after Open: Thread-safe. Reports a file that shrank later; does not watch for changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/table_spec.h"

namespace engram {

// `bytes` bytes at `offset` of the file: whole rows of one plane, back to back.
struct Extent {
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class CheckpointSource {
 public:
  // `name_map_json`: "" or a JSON object {wanted tensor name: name in the files}.
  // NotFound: a file is missing. InvalidArgument: a file is wrong; the message names file, tensor
  // or field, value, limit.
  static absl::StatusOr<std::unique_ptr<CheckpointSource>> Open(const std::string& directory,
                                                                const std::string& name_map_json);

  const TableSpec& spec() const { return inspection_.spec; }
  const TokenMap& token_map() const { return inspection_.token_map; }
  // source_bytes = bytes of the tensors that make up the table.
  const Inspection& inspection() const { return inspection_; }

  // Where rows [first, first + rows) of spec().planes[plane] lie, in row order; one extent for each
  // layer touched. REQUIRES: plane and rows exist in the spec.
  std::vector<Extent> Extents(std::uint32_t plane, RowId first, std::uint64_t rows) const;

  // Packed rows (planes joined, no seals) from `first`. DataLoss: a file is shorter than it was, or
  // cannot be read. REQUIRES: out.size() is a multiple of spec().RowBytes(), the rows exist.
  absl::Status ReadRows(RowId first, std::span<std::byte> out) const;

 private:
  // One tensor: one plane of one layer.
  struct Part {
    std::string path;
    std::uint64_t offset;
  };

  CheckpointSource() = default;

  Inspection inspection_;
  std::vector<std::uint64_t> layer_first_row_;  // one more entry than layers
  std::vector<Part> parts_;                     // [layer][plane]
};

}  // namespace engram
