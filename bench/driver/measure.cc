#include "bench/driver/measure.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engram/synthetic.h"

namespace engram::bench {

BatchSet::BatchSet(const TableShape& shape, std::uint32_t batch_rows, std::uint32_t batches,
                   std::uint64_t seed)
    : shape_(shape),
      random_(seed),
      ids_(std::size_t{batch_rows} * batches),
      out_(ids_.size() * shape.row_bytes),
      expected_(shape.row_bytes) {
  for (std::uint32_t i = 0; i < batches; ++i) {
    const std::size_t first = std::size_t{i} * batch_rows;
    batches_.push_back({{ids_.data() + first, batch_rows}, out_.data() + first * shape.row_bytes});
  }
}

std::span<const Batch> BatchSet::Draw() {
  for (RowId& id : ids_) id = RowId(random_.Below(shape_.rows));
  return batches_;
}

absl::Status BatchSet::Verify() const {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    FillSyntheticRow(shape_.seed, ids_[i], expected_);
    if (std::memcmp(expected_.data(), out_.data() + i * shape_.row_bytes, shape_.row_bytes) != 0) {
      return absl::DataLossError(absl::StrCat("row ", ids_[i].value(), " was read wrong"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Measured> Measure(ReadPath& path, BatchSet& set, Duration budget) {
  const Clock& clock = SystemClock::Get();
  std::vector<double> call_us;
  Duration spent{0};
  Measured out;
  while (spent < budget) {
    const auto batches = set.Draw();
    const Instant begin = clock.Now();
    const absl::Status read = path.Read(batches);
    const Duration took = clock.Now() - begin;
    if (!read.ok())
      return absl::Status(read.code(), absl::StrCat(path.name(), ": ", read.message()));
    if (absl::Status right = set.Verify(); !right.ok()) {
      return absl::DataLossError(absl::StrCat(path.name(), ": ", right.message()));
    }
    spent += took;
    out.rows_verified += set.rows();
    call_us.push_back(static_cast<double>(took.count()) / 1e3 / static_cast<double>(set.batches()));
  }
  std::sort(call_us.begin(), call_us.end());
  out.batch_us_p50 = call_us[call_us.size() / 2];
  out.batch_us_p99 = call_us[call_us.size() * 99 / 100];
  out.rows_per_second =
      static_cast<double>(out.rows_verified) * 1e9 / static_cast<double>(spent.count());
  return out;
}

std::uint32_t BatchesPerCall(std::uint32_t batch_rows, std::uint32_t outstanding) {
  constexpr std::uint32_t kRowsPerCall = 1024;
  const std::uint32_t long_enough = (kRowsPerCall + batch_rows - 1) / batch_rows;
  return std::max({long_enough, outstanding == 1 ? 1 : 4 * outstanding, 1u});
}

}  // namespace engram::bench
