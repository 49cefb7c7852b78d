#include "bench/driver/commands.h"
#include "engram/checkpoint/writer.h"

namespace engram::bench {

absl::Status RunCheckpoint(const CheckpointRun& run) {
  CheckpointPlan plan;
  plan.directory = run.out;
  plan.geometry.base_rows = run.engram_vocab_size;
  plan.seed = run.seed;
  plan.tokenizer = run.tokenizer;
  return WriteCheckpoint(plan).status();
}

}  // namespace engram::bench
