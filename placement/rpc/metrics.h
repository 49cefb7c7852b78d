// The controller's metrics (names: OPERATIONS), computed from the published state when scraped.
// Thread-safe.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <string>
#include <vector>

#include "placement/heat/heat_board.h"
#include "placement/ops/controller_loop.h"

namespace engram::placement {

class ControllerMetrics final : public prometheus::Collectable {
 public:
  // `loop` and `heat` must outlive the metrics.
  ControllerMetrics(const ControllerLoop* loop, const HeatBoard* heat, std::string version)
      : loop_(loop), heat_(heat), version_(std::move(version)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ControllerLoop* const loop_;
  const HeatBoard* const heat_;
  const std::string version_;
};

// Shards of tables that are Ready or Loading with fewer serving replicas on alive nodes than
// wanted.
std::uint64_t UnderReplicated(const ClusterState& state);

}  // namespace engram::placement
