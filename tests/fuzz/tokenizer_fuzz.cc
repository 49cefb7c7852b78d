// tokenizer.json -> token map.
#include <cstdint>
#include <string_view>

#include "engram/check.h"
#include "engram/checkpoint/token_map.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)engram::CompressionKey(text);
  const auto tokens = engram::ParseTokenizer(text, "tokenizer.json");
  if (!tokens.ok()) return 0;
  const engram::TokenMap map = engram::MapOf(*tokens);
  ENGRAM_CHECK(map.size() == tokens->size());
  ENGRAM_CHECK(engram::CompressedCount(map) <= map.size());
  return 0;
}
