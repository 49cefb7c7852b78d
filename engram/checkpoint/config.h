// config.json of an Engram checkpoint -> geometry and table spec (INTERFACES section 3). Every
// count that the file states is compared with the one that follows from the geometry and the token
// map. Pure: Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/addressing.h"

namespace engram {

struct CheckpointConfig {
  EngramGeometry geometry;                // raw_vocab and token_map_digest come from the tokenizer
  std::vector<std::uint64_t> layer_rows;  // `engram_num_embeddings`; empty = not stated
};

// Fields may stand at the top or under "text_config". InvalidArgument names the field.
absl::StatusOr<CheckpointConfig> ParseCheckpointConfig(std::string_view json,
                                                       std::string_view what);

// The spec of the table, after comparing the compressed vocabulary with the map and the stated rows
// with the primes.
absl::StatusOr<TableSpec> SpecOf(const CheckpointConfig& config, const TokenMap& map,
                                 std::string_view what);

// The part that needs no map: the spec of `geometry` after comparing config.layer_rows with it.
absl::StatusOr<TableSpec> SpecOf(const CheckpointConfig& config, const EngramGeometry& geometry,
                                 std::string_view what);

}  // namespace engram
