// A local pool over `stream` with one table, for what happens beside reads when its shards move or
// are repaired: engramctl commands change the pool, decode steps read it all the while.
// Thread-confined: call from the owner thread only, `scene().pool` excepted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/scene.h"
#include "bench/driver/timed_step.h"

namespace engram::bench {

// Bytes a second, of a node that pulls: the default of --move-rate.
inline constexpr std::uint64_t kMoveRate = std::uint64_t{256} << 20;

class MovedPool {
 public:
  struct Shape {
    int nodes = 2;
    const char* replicas = "1";
    const char* max_nodes = "1";
  };
  static absl::StatusOr<std::unique_ptr<MovedPool>> Up(const BenchOptions& options,
                                                       const Shape& shape);

  const Scene& scene() const { return scene_; }
  // Of one copy of the table.
  double bytes() const;
  // Decode steps (batch 64) until `stop`; their tail, in us.
  absl::StatusOr<double> TailUntil(const std::function<bool()>& stop);
  absl::StatusOr<double> TailFor(Duration length);
  // Steps that may fail, for so long: readers find out that a node is gone.
  void ReadThrough(Duration length);

  // `moved`: what happened beside reads, a round each. The tail over that of reads alone, and the
  // rate over kMoveRate.
  struct Moved {
    double tail_ratio = 0, rate_ratio = 0;
  };
  std::vector<Figure> Figures(const char* tail_name, const char* rate_name,
                              const std::string& alone, const std::vector<Moved>& moved) const;

 private:
  MovedPool() = default;

  Scene scene_;
  OpenedTable opened_;
  std::unique_ptr<client::SharedPrefetcher> prefetcher_;
  std::unique_ptr<TimedStep> step_;
};

}  // namespace engram::bench
