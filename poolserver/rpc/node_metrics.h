// The metrics of a pool node (OPERATIONS has the names), computed when they are scraped: nothing on
// the data path or in the loop counts for them. Thread-safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric/stream/stream_target.h"
#include "poolserver/exposure.h"
#include "poolserver/node_loop.h"
#include "poolserver/nvme/nvme_store.h"
#include "poolserver/tiers.h"
#include "prometheus/collectable.h"

namespace engram::poolserver {

class NodeMetrics final : public prometheus::Collectable {
 public:
  struct Sources {
    NodeLoop* loop = nullptr;
    const Tiers* tiers = nullptr;
    Exposure* exposure = nullptr;
    const fabric::stream::StreamTarget* stream = nullptr;  // may be null
    const nvme::NvmeStore* nvme = nullptr;                 // null: no such tier
    std::set<Tier> measured;                               // tiers whose read rate was measured
    std::string version;
  };
  explicit NodeMetrics(Sources sources) : sources_(std::move(sources)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Sources sources_;
};

}  // namespace engram::poolserver
