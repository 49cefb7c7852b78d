#include "bench/replay.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace engram::bench {
namespace {

constexpr std::size_t kMaxTraceBytes = std::size_t{1} << 30;
constexpr std::uint32_t kMaxWaiting = 256;

absl::StatusOr<std::vector<std::int64_t>> ReadTokens(const std::string& path) {
  auto bytes = ReadZstd(path);
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty() || bytes->size() % 4 != 0) {
    return absl::DataLossError(
        absl::StrCat("trace ", path, " has ", bytes->size(),
                     " bytes; it must be whole little-endian uint32 token ids"));
  }
  std::vector<std::int64_t> tokens(bytes->size() / 4);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::uint32_t id;
    std::memcpy(&id, bytes->data() + 4 * i, 4);
    tokens[i] = id;
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::string> ReadZstd(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  const std::string packed((std::istreambuf_iterator<char>(file)), {});
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxTraceBytes) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a zstd file of known size up to ", kMaxTraceBytes));
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) || got != size)
    return absl::DataLossError(absl::StrCat(path, " is damaged"));
  return bytes;
}

absl::StatusOr<Replay> Replay::Open(const ReplayOptions& options) {
  Replay replay(options);
  auto trace = ReadTokens(options.trace);
  if (!trace.ok()) return trace.status();
  replay.trace_ = *std::move(trace);
  replay.trace_tokens_ = replay.trace_.size();

  auto lines = ReadZstd(options.arrivals);
  if (!lines.ok()) return lines.status();
  std::uint32_t longest = 0;
  for (std::size_t begin = 0; begin < lines->size();) {
    const std::size_t end = std::min(lines->find('\n', begin), lines->size());
    const auto line =
        nlohmann::json::parse(lines->begin() + begin, lines->begin() + end, nullptr, false);
    if (!line.is_object()) {
      return absl::DataLossError(absl::StrCat(
          options.arrivals, ": line ", replay.arrivals_.size() + 1, " is not a JSON object"));
    }
    Arrival arrival{line.value("timestamp", std::int64_t{0}), line.value("input_length", 1u),
                    line.value("output_length", 1u)};
    arrival.input = std::clamp(arrival.input, 1u, options.max_input);
    arrival.output = std::clamp(arrival.output, 1u, options.max_input);
    longest = std::max(longest, arrival.input + arrival.output);
    replay.arrivals_.push_back(arrival);
    begin = end + 1;
  }
  if (replay.arrivals_.empty())
    return absl::DataLossError(absl::StrCat(options.arrivals, " is empty"));

  for (std::size_t i = 0; i < longest; ++i) replay.trace_.push_back(replay.trace_[i]);
  return replay;
}

const Step& Replay::Next() {
  Admit();
  step_.parts.clear();
  step_.tokens = 0;
  const bool room = !waiting_.empty() && decoding_.size() < options_.decode_batch;
  prefilled_ = decoding_.empty() || (room && !prefilled_);
  if (prefilled_) {
    PrefillStep();
  } else {
    DecodeStep();
  }
  for (const StepPart& part : step_.parts)
    step_.tokens += static_cast<std::uint32_t>(part.tokens.size());
  step_.virtual_ms = static_cast<std::int64_t>(now_ms_);
  return step_;
}

void Replay::Admit() {
  // An idle replica jumps to the next arrival; a full waiting room leaves arrivals in the trace.
  const bool idle = waiting_.empty() && decoding_.empty();
  while (waiting_.size() < kMaxWaiting) {
    if (next_arrival_ == arrivals_.size()) {
      next_arrival_ = 0;
      epoch_ms_ = now_ms_;
    }
    const Arrival& next = arrivals_[next_arrival_];
    const double at = epoch_ms_ + static_cast<double>(next.at_ms);
    if (at > now_ms_) {
      if (!idle || !waiting_.empty()) break;
      now_ms_ = at;
    }
    waiting_.push_back({random_.Below(trace_tokens_), next.input, next.output});
    ++next_arrival_;
  }
}

StepPart Replay::Part(const Running& request, std::uint32_t tokens) const {
  const std::uint32_t before = std::min(request.done, kLookback);
  const std::int64_t* first = trace_.data() + request.begin + request.done;
  return {{first, tokens}, {first - before, before}};
}

void Replay::PrefillStep() {
  Running& request = waiting_.front();
  const std::uint32_t tokens = std::min(kPrefillChunk, request.input - request.done);
  step_.kind = Step::Kind::kPrefill;
  step_.parts.push_back(Part(request, tokens));
  request.done += tokens;
  now_ms_ += 1000.0 * tokens / options_.prefill_tokens_per_second;
  if (request.done == request.input) {
    decoding_.push_back(request);
    waiting_.pop_front();
  }
}

void Replay::DecodeStep() {
  step_.kind = Step::Kind::kDecode;
  for (Running& request : decoding_) {
    step_.parts.push_back(Part(request, 1));
    ++request.done;
  }
  std::erase_if(decoding_, [](const Running& r) { return r.done == r.input + r.output; });
  now_ms_ += options_.decode_step_ms;
}

}  // namespace engram::bench
