// Writes a checkpoint directory in the released format (config.json, tokenizer.json, index, several
// safetensors files) whose Engram rows are synthetic (engram/synthetic.h), at disk speed: for the
// demo, the bench and the tests. Row r of the checkpoint equals row r of the synthetic table of the
// same geometry and seed. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "engram/addressing.h"

namespace engram {

struct CheckpointPlan {
  std::string directory;  // made if missing
  // raw_vocab, compressed_vocab and token_map_digest follow from the tokenizer; raw_vocab is the
  // size of the generated one.
  EngramGeometry geometry;
  std::uint64_t seed = 0;
  std::string tokenizer;       // path of a tokenizer.json to copy; "" = generate one
  std::string tensor_prefix;   // "", "model.", "language_model.model."
  bool nested_config = false;  // Engram fields under "text_config"
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes; may be empty
};

// Returns the spec of the table that was written. The index is written last: a directory whose
// writing failed is not a checkpoint.
absl::StatusOr<TableSpec> WriteCheckpoint(const CheckpointPlan& plan);

// A byte-level BPE tokenizer.json with `tokens` tokens: 256 bytes, then distinct words.
std::string GenerateTokenizer(std::uint64_t tokens);

}  // namespace engram
