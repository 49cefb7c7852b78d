// tokenizer.json -> TokenMap, as the engines compress token ids (ENGRAM section 3). Reads the BPE
// vocabulary and the added tokens of a Hugging Face tokenizer with a byte-level decoder; merges and
// everything else do not matter here. Pure: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/addressing.h"

namespace engram {

// The tokens as the tokenizer writes them (byte-level alphabet), index = id.
// InvalidArgument names `what`: not JSON, not BPE, not byte-level, an id twice or missing.
absl::StatusOr<std::vector<std::string>> ParseTokenizer(std::string_view json,
                                                        std::string_view what);

// The text of one token: byte-level characters turned back into bytes. May be invalid UTF-8.
std::string DecodeToken(std::string_view token);

// What two tokens must share to become one compressed id.
std::string CompressionKey(std::string_view token);

TokenMap MapOf(const std::vector<std::string>& tokens);
// Number of different compressed ids.
std::uint64_t CompressedCount(const TokenMap& map);

// Both steps on a file of at most 64 MiB.
absl::StatusOr<TokenMap> ReadTokenizer(const std::string& path);

}  // namespace engram
