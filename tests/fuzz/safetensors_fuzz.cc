// A whole file: header length, header, data. Also read as an index.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "engram/check.h"
#include "engram/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  (void)engram::ParseSafetensorsIndex(file, "index");
  std::uint64_t length;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  if (length > size - sizeof length) return 0;  // refused by the reader of files
  const auto tensors = engram::ParseSafetensorsHeader(file.substr(8, length), size, "file");
  if (!tensors.ok()) return 0;
  // Whatever was accepted tiles the file.
  std::uint64_t bytes = sizeof length + length;
  for (const auto& [name, tensor] : *tensors) {
    ENGRAM_CHECK(tensor.offset >= sizeof length + length);
    ENGRAM_CHECK(tensor.bytes <= size && tensor.offset <= size - tensor.bytes);
    bytes += tensor.bytes;
  }
  ENGRAM_CHECK(bytes == size);
  return 0;
}
