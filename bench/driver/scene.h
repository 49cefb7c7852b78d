// What the figures of a benchmark share: a local pool of one node with a plain and a sealed table,
// and the same rows in this process for the floors. Thread-confined: call from the owner thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/commands.h"
#include "bench/driver/figures.h"
#include "bench/driver/local_pool.h"
#include "bench/driver/measure.h"
#include "bench/driver/paths.h"
#include "client/rpc/pool.h"

namespace engram::bench {

inline constexpr std::uint64_t kTableSeed = 7;
inline constexpr char kPlainTable[] = "plain@1", kSealedTable[] = "sealed@1";

struct Scene {
  // A table of 2.1 GiB of rows, 0.2 GiB with `quick`.
  static absl::StatusOr<std::unique_ptr<Scene>> Open(const BenchOptions& options);

  // Another pool, with the sealed table only, whose node serves over ucx with these transports.
  absl::Status ServeOverUcx(const std::string& transports);

  int rounds() const { return options.quick ? 3 : 5; }
  Duration budget() const { return std::chrono::milliseconds(options.quick ? 20 : 150); }
  // Prints the figures, and writes them where the options say.
  absl::Status Report() const;

  BenchOptions options;
  std::string ucx_transports;
  std::unique_ptr<LocalPool> pool;
  std::unique_ptr<BenchTable> rows;
  std::vector<Figure> figures;
};

// A table of the scene as a client reads it over one fabric.
struct OpenedTable {
  static absl::StatusOr<OpenedTable> Open(const Scene& scene, FabricKind fabric,
                                          const std::string& name);
  TableShape shape() const {
    return {table->layout().rows(), table->spec().RowBytes(), kTableSeed};
  }

  std::unique_ptr<client::Pool> pool;
  std::unique_ptr<client::Table> table;
};

}  // namespace engram::bench
