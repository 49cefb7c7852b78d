// The JSON that describes a synthetic table (INTERFACES section 3), for instance
//   {"model": "deepseek-v4.1", "engram_vocab_size": 160000, "layers": [1, 14], "seed": 7}
// Its bytes are those of engram/synthetic.h. Pure but for reading the token map: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engram/addressing.h"

namespace engram {

struct SyntheticTable {
  TableSpec spec;
  TokenMap token_map;  // empty = identity: compressed vocabulary = raw vocabulary
  std::uint64_t seed = 0;
};

// Keys, all but "model" optional; missing ones take DeepSeek-V4.1-Flash's value:
//   model                         "deepseek-v4.1"
//   layers or engram_layer_ids    [1, 14]
//   engram_vocab_size             16000000
//   engram_max_ngram_size         4
//   engram_n_heads                8
//   engram_head_dim               256
//   engram_pad_token_id           2
//   vocab_size                    129280, or the size of the token map
//   token_map                     a tokenizer.json, or little-endian int32 entries; relative to
//                                 `directory`; none = identity
//   engram_num_embeddings, engram_compressed_vocab_size    compared with the derived ones
//   base_seed                     0, of the multipliers
//   seed                          0, of the bytes
// Integers above 2^53 are written as strings. InvalidArgument: an unknown key (names the nearest),
// a wrong value, a count that differs.
absl::StatusOr<SyntheticTable> ParseSyntheticSpec(std::string_view json, std::string_view what,
                                                  const std::string& directory);
// The same from a file; token_map is relative to its folder.
absl::StatusOr<SyntheticTable> ReadSyntheticSpec(const std::string& path);

}  // namespace engram
