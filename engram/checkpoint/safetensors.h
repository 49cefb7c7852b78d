// The safetensors container: an 8-byte little-endian header length, a JSON header, then the tensors
// back to back. Strict: a header that overlaps, leaves a hole, or does not end with the file is
// refused, so a truncated or overwritten file is found before a byte of it is served.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace engram {

struct Tensor {
  std::string dtype;  // as written: "F8_E4M3", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
};

using Tensors = std::map<std::string, Tensor>;

// The format's own limit for a header.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// `header` is the JSON text (without the length), `file_bytes` the size of the whole file, `what`
// names the file in errors. InvalidArgument says which tensor and why.
absl::StatusOr<Tensors> ParseSafetensorsHeader(std::string_view header, std::uint64_t file_bytes,
                                               std::string_view what);

// Reads and checks the header of a file.
absl::StatusOr<Tensors> ReadSafetensorsHeader(const std::string& path);

// Tensor name -> file name, from model.safetensors.index.json. File names are plain names: no
// folder, because an index must not reach outside its checkpoint.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json,
                                                                         std::string_view what);

}  // namespace engram
