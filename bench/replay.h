// The workload, defined once for the demo, the bench and the tests: an inference replica that
// serves the arrivals of a real chat service over the tokens of a real text.
//
// Requests arrive at the times and with the lengths of `arrivals_conversation`; the tokens of a
// request are a consecutive slice of the trace at a seeded offset (wrapping at its end). The
// replica prefills in chunks of 4,096 tokens, one request at a time, and after each chunk decodes
// one token for every running request; while `decode_batch` requests run, it only decodes. Time is
// virtual: a prefilled token and a decode step take what the options say, so the sequence of steps
// depends on the seed alone. Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/random.h"

namespace engram::bench {

inline constexpr std::uint32_t kPrefillChunk = 4096;
inline constexpr std::uint32_t kLookback =
    3;  // tokens before a chunk that its first rows depend on

struct ReplayOptions {
  std::string trace;     // path of tokens_*.u32.zst
  std::string arrivals;  // path of arrivals_conversation.jsonl.zst
  std::uint64_t seed = 1;
  std::uint32_t decode_batch = 64;
  std::uint32_t max_input = 32'768;  // longer prompts are cut, as a context limit would
  double prefill_tokens_per_second = 70'000;
  double decode_step_ms = 20;
};

// Tokens of one request that this step needs rows for, and the tokens just before them.
struct StepPart {
  std::span<const std::int64_t> tokens;
  std::span<const std::int64_t> lookback;  // up to kLookback, oldest first
};

struct Step {
  enum class Kind : std::uint8_t { kPrefill, kDecode } kind = Kind::kDecode;
  std::vector<StepPart> parts;
  std::uint32_t tokens = 0;
  std::int64_t virtual_ms = 0;
};

class Replay {
 public:
  // NotFound, InvalidArgument or DataLoss name the file and what is wrong with it.
  static absl::StatusOr<Replay> Open(const ReplayOptions& options);

  // The next step; its spans live until the Replay does. Never ends: after the last arrival it
  // starts anew.
  const Step& Next();

  std::span<const std::int64_t> trace() const { return trace_; }

 private:
  struct Arrival {
    std::int64_t at_ms;
    std::uint32_t input;
    std::uint32_t output;
  };
  struct Running {
    std::uint64_t begin;  // offset of the slice in trace_
    std::uint32_t input;
    std::uint32_t output;
    std::uint32_t done = 0;  // tokens whose rows were read
  };

  explicit Replay(const ReplayOptions& options) : options_(options), random_(options.seed) {}
  void Admit();
  void PrefillStep();
  void DecodeStep();
  StepPart Part(const Running& request, std::uint32_t tokens) const;

  ReplayOptions options_;
  SeededRandom random_;
  std::vector<std::int64_t> trace_;  // the text, then its beginning again so that slices never wrap
  std::uint64_t trace_tokens_ = 0;
  std::vector<Arrival> arrivals_;
  std::size_t next_arrival_ = 0;
  double now_ms_ = 0;
  double epoch_ms_ = 0;  // virtual time at which the arrivals (re)started
  std::deque<Running> waiting_;
  std::vector<Running> decoding_;
  Step step_;
  bool prefilled_ = false;  // the last step was a prefill chunk
};

// Reads a zstd file whole. NotFound, DataLoss name it.
absl::StatusOr<std::string> ReadZstd(const std::string& path);

}  // namespace engram::bench
