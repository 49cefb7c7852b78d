// What the figures of `engram-bench tiers` share: a table, a directory on a disk, and the figures.
// Thread-confined: call from the owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/commands.h"
#include "bench/driver/figures.h"
#include "bench/driver/measure.h"
#include "bench/driver/tier_node.h"

namespace engram::bench {

struct TiersScene {
  // A table of 2.1 GiB of stored rows, 0.6 GiB with `quick`; the folder is removed at the end.
  static absl::StatusOr<std::unique_ptr<TiersScene>> Open(const BenchOptions& options);
  ~TiersScene();

  int rounds() const { return options.quick ? 3 : 5; }
  Duration budget() const { return std::chrono::milliseconds(options.quick ? 300 : 1000); }
  double fio_seconds() const { return options.quick ? 1 : 2; }
  std::uint64_t base_rows() const { return options.quick ? 48'000 : 160'000; }
  std::uint64_t table_bytes() const { return shape.rows * (shape.row_bytes + kSealBytes); }
  absl::StatusOr<std::unique_ptr<TierNode>> Node(std::uint64_t cache_bytes,
                                                 std::uint32_t depth) const;

  BenchOptions options;
  std::string folder;  // on a disk
  TableRecord table;
  TableShape shape;
  std::vector<Figure> figures;
};

// `nvme_cached_vs_model`, `nvme_misses_vs_lru` and what they are made of; appended to the scene's.
absl::Status MeasureTierCache(TiersScene& scene);

// `tier_move_vs_slower_to_nvme`, `tier_move_vs_slower_to_dram` and what they are made of.
absl::Status MeasureTierMoves(TiersScene& scene);

}  // namespace engram::bench
