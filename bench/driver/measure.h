// Runs a ReadPath over seeded uniform batches: time is taken around each read only, and every row
// that was read is verified between the timed sections. Thread-confined: call from the owner thread
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/paths.h"
#include "engram/clock.h"
#include "engram/random.h"

namespace engram::bench {

// What the rows of the measured table must be: row r holds the synthetic bytes of (seed, r).
struct TableShape {
  std::uint64_t rows = 0;
  std::uint32_t row_bytes = 264;
  std::uint64_t seed = 0;
};

struct Measured {
  double rows_per_second = 0;
  double batch_us_p50 = 0, batch_us_p99 = 0;  // of one Read call, over its batches
  std::uint64_t rows_verified = 0;
};

// The batches of one Read call, their ids drawn anew each time.
class BatchSet {
 public:
  BatchSet(const TableShape& shape, std::uint32_t batch_rows, std::uint32_t batches,
           std::uint64_t seed);
  std::span<const Batch> Draw();
  // DataLoss names the first row whose bytes differ.
  absl::Status Verify() const;
  std::uint64_t rows() const { return ids_.size(); }
  std::size_t batches() const { return batches_.size(); }

 private:
  const TableShape shape_;
  SeededRandom random_;
  std::vector<RowId> ids_;
  std::vector<std::byte> out_;
  std::vector<Batch> batches_;
  mutable std::vector<std::byte> expected_;
};

// Reads until `budget` of timed reading has passed.
absl::StatusOr<Measured> Measure(ReadPath& path, BatchSet& set, Duration budget);

// How many batches of `batch_rows` one Read call gets, so that a call is long against the clock.
std::uint32_t BatchesPerCall(std::uint32_t batch_rows, std::uint32_t outstanding);

}  // namespace engram::bench
