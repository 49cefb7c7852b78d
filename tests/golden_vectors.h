// The golden vectors of tests/data, as the tests of addressing read them, on a CPU and in a GPU's
// kernels. Thread-compatible.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "checkout.h"
#include "engram/addressing.h"

namespace engram {

inline std::string ReadData(const std::string& name) {
  std::ifstream file(std::string(ENGRAM_SOURCE_DIR "/tests/data/") + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline TokenMap DeepseekMap() {
  const std::string bytes = ReadData("dsv41_token_map.i32");
  TokenMap map(bytes.size() / 4);
  std::memcpy(map.data(), bytes.data(), bytes.size());
  return map;
}

inline std::vector<std::uint8_t> Flags(const nlohmann::json& value) {
  std::vector<std::uint8_t> out;
  if (value.is_null()) return out;
  for (const nlohmann::json& flag : value) out.push_back(flag.get<bool>());
  return out;
}

inline std::string LittleEndian(const std::vector<std::int64_t>& values) {
  std::string out;
  for (std::int64_t value : values) {
    for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

}  // namespace engram
