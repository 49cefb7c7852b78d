#include "poolserver/tier_source.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {
namespace {

// Read, and taken from the rate, together.
constexpr std::uint64_t kTierPieceBytes = std::uint64_t{1} << 20;
constexpr auto kRatePause = std::chrono::milliseconds(1);

}  // namespace

TierSource::TierSource(const TableRecord& table, TierStore* from, RateLimit* rate,
                       const Clock* clock, const std::atomic<bool>* stopping)
    : layout_(table.spec, table.options),
      packer_(table),
      table_(table.uid),
      from_(from),
      rate_(rate),
      clock_(clock),
      stopping_(stopping) {}

absl::Status TierSource::Fill(std::span<const RowRun> runs, Scratch*) const {
  std::vector<std::byte> scratch;
  for (const RowRun& run : runs) {
    absl::Status status = Copy(run, &scratch);
    if (status.ok()) status = packer_.Verify({run.first, run.rows, run.out, run.block_crcs});
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("the ", std::string(Name(from_->tier())),
                                                    " tier of this node: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status TierSource::Copy(const RowRun& run, std::vector<std::byte>* scratch) const {
  const std::uint64_t stride = layout_.stride();
  const ShardSlot begin = layout_.Locate(run.first);
  const std::uint64_t piece =
      std::max<std::uint64_t>(1, kTierPieceBytes / (kBlockRows * stride)) * kBlockRows;
  for (std::uint64_t row = 0; row < run.rows; row += piece) {
    const std::uint64_t bytes = std::min(piece, run.rows - row) * stride;
    if (absl::Status now = AwaitRate(bytes); !now.ok()) return now;
    const auto from =
        from_->Read({table_, begin.shard}, (begin.slot + row) * stride, bytes, scratch);
    if (!from.ok()) return from.status();
    std::memcpy(run.out + row * stride, *from, bytes);
  }
  return absl::OkStatus();
}

absl::Status TierSource::AwaitRate(std::uint64_t bytes) const {
  while (true) {
    if (stopping_ != nullptr && stopping_->load()) {
      return absl::CancelledError("the node is stopping");
    }
    if (rate_ == nullptr || rate_->Take(clock_->Now(), bytes)) return absl::OkStatus();
    std::this_thread::sleep_for(kRatePause);
  }
}

}  // namespace engram::poolserver
