#include "poolserver/rpc/node_metrics.h"

#include <array>
#include <map>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "fabric/ofi/provider.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"

namespace engram::poolserver {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

// A scrape that finds the loop busy for longer leaves its figures out.
constexpr absl::Duration kPatience = absl::Seconds(1);

class Family {
 public:
  Family(const char* name, const char* help, prometheus::MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  Family& Add(double value, const Labels& labels = {}) {
    prometheus::ClientMetric metric;
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    if (family_.type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
    return *this;
  }
  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  prometheus::MetricFamily family_;
};

Family Gauge(const char* name, const char* help) {
  return {name, help, prometheus::MetricType::Gauge};
}
Family Counter(const char* name, const char* help) {
  return {name, help, prometheus::MetricType::Counter};
}

// What only the loop's thread may look at.
struct LoopFigures {
  std::map<std::pair<ReplicaState, Tier>, double> replicas;
  double sessions = 0;
  double retirements_pending = 0;
  double controller_connected = 0;
  double map_epoch = 0;
  NodeState::Counters counters;
};

std::shared_ptr<LoopFigures> Look(NodeLoop* loop) {
  auto figures = std::make_shared<LoopFigures>();
  auto done = std::make_shared<absl::Notification>();
  loop->Ask([figures, done](const NodeState& state) {
    for (const auto& [shard, replica] : state.replicas()) {
      figures->replicas[{replica.state(), replica.tier()}] += 1;
    }
    figures->sessions = static_cast<double>(state.sessions());
    figures->retirements_pending = static_cast<double>(state.retirements_pending());
    figures->controller_connected = state.controller_reachable() ? 1 : 0;
    figures->map_epoch = static_cast<double>(state.map_epoch().value());
    figures->counters = state.counters();
    done->Notify();
  });
  if (!done->WaitForNotificationWithTimeout(kPatience)) return nullptr;
  return figures;
}

void AddTiers(const NodeMetrics::Sources& sources, std::vector<prometheus::MetricFamily>* out) {
  Family capacity = Gauge("engram_pool_capacity_bytes", "Room for replicas, by tier.");
  Family allocated = Gauge("engram_pool_allocated_bytes",
                           "Room that is taken or promised, what readers still map included.");
  Family registered =
      Gauge("engram_pool_registered_bytes", "Memory of replicas exposed for reading.");
  Family rate = Gauge("engram_pool_read_bytes_per_second",
                      "Bytes of rows that readers can have of a tier together; 0: not known.");
  Family measured = Gauge("engram_pool_read_rate_measured",
                          "1 where that was measured when the node started; 0: as set.");
  Family healthy = Gauge("engram_pool_tier_healthy", "0 while a tier takes nothing new.");
  for (const TierCapacity& tier : sources.tiers->capacity()) {
    const Labels labels{{"tier", std::string(Name(tier.tier))}};
    capacity.Add(static_cast<double>(tier.capacity_bytes), labels);
    allocated.Add(static_cast<double>(tier.allocated_bytes), labels);
    registered.Add(static_cast<double>(sources.exposure->registered_bytes(tier.tier)), labels);
    rate.Add(static_cast<double>(tier.read_bytes_per_second), labels);
    measured.Add(static_cast<double>(sources.measured.count(tier.tier)), labels);
    healthy.Add(tier.trouble.empty() ? 1 : 0, labels);
  }
  for (Family* family : {&capacity, &allocated, &registered, &rate, &measured, &healthy}) {
    out->push_back(family->Take());
  }
}

void AddReplicas(const LoopFigures& figures, const Tiers& tiers,
                 std::vector<prometheus::MetricFamily>* out) {
  Family replicas = Gauge("engram_replicas", "Replicas held, by state and tier.");
  for (ReplicaState state : {ReplicaState::kLoading, ReplicaState::kServing,
                             ReplicaState::kDraining, ReplicaState::kRetired}) {
    for (const auto& store : tiers.stores()) {
      auto found = figures.replicas.find({state, store->tier()});
      replicas.Add(
          found == figures.replicas.end() ? 0 : found->second,
          {{"state", std::string(Name(state))}, {"tier", std::string(Name(store->tier()))}});
    }
  }
  out->push_back(replicas.Take());
}

void AddLoop(const LoopFigures& figures, const Tiers& tiers,
             std::vector<prometheus::MetricFamily>* out) {
  AddReplicas(figures, tiers, out);
  out->push_back(Gauge("engram_sessions", "Read sessions whose lease may still run.")
                     .Add(figures.sessions)
                     .Take());
  const NodeState::Counters& counters = figures.counters;
  out->push_back(
      Counter("engram_lease_renewals_total", "Lease renewals answered, and sessions that ran out.")
          .Add(static_cast<double>(counters.renewals_extended), {{"result", "extended"}})
          .Add(static_cast<double>(counters.renewals_not_extended), {{"result", "not_extended"}})
          .Add(static_cast<double>(counters.sessions_run_out), {{"result", "run_out"}})
          .Take());
  out->push_back(
      Counter("engram_verify_failures_total", "Replicas that failed their checksums or seals.")
          .Add(static_cast<double>(counters.loads_unsound), {{"reason", "load"}})
          .Add(static_cast<double>(counters.scrubs_unsound), {{"reason", "scrub"}})
          .Take());
  out->push_back(Counter("engram_tier_moves_total", "Replicas moved to another tier of this node.")
                     .Add(static_cast<double>(counters.tier_moves), {{"result", "done"}})
                     .Add(static_cast<double>(counters.tier_moves_failed), {{"result", "failed"}})
                     .Take());
  out->push_back(Counter("engram_scrub_bytes_total", "Bytes compared with their checksums again.")
                     .Add(static_cast<double>(counters.scrubbed_bytes))
                     .Take());
  out->push_back(
      Counter("engram_registration_renewals_total",
              "Replicas registered under new keys because a reader lost its right to "
              "them; those that could not be were retired.")
          .Add(static_cast<double>(counters.registrations_renewed), {{"result", "begun"}})
          .Add(static_cast<double>(counters.renewals_failed), {{"result", "failed"}})
          .Take());
  out->push_back(Gauge("engram_retirements_pending", "Replicas that wait for readers to let go.")
                     .Add(figures.retirements_pending)
                     .Take());
  out->push_back(Gauge("engram_map_epoch", "Epoch of the shard map, by the controller's last word.")
                     .Add(figures.map_epoch)
                     .Take());
  out->push_back(Gauge("engram_controller_connected", "1 while the controller can be reached.")
                     .Add(figures.controller_connected)
                     .Take());
}

void AddGather(const fabric::stream::StreamTarget* stream,
               std::vector<prometheus::MetricFamily>* out) {
  Family rows = Counter("engram_gather_rows_total", "Rows served by the owner-side gather.");
  Family messages =
      Counter("engram_gather_messages_total", "Messages answered by the owner-side gather.");
  constexpr std::array<std::pair<fabric::Lane, const char*>, 2> kLanes = {
      {{fabric::Lane::kUrgent, "urgent"}, {fabric::Lane::kBulk, "bulk"}}};
  for (const auto& [lane, name] : kLanes) {
    const auto counted =
        stream != nullptr ? stream->counters(lane) : fabric::stream::LaneCounters{};
    rows.Add(static_cast<double>(counted.rows), {{"lane", name}});
    messages.Add(static_cast<double>(counted.messages), {{"lane", name}});
  }
  out->push_back(rows.Take());
  out->push_back(messages.Take());
  Family tenants =
      Counter("engram_tenant_gather_rows_total", "Rows that were gathered for a tenant.");
  Family waited = Counter("engram_tenant_gather_waits_total",
                          "Messages that waited for the budget of their tenant.");
  const auto uses = stream != nullptr ? stream->tenant_uses() : std::vector<TenantUse>();
  for (const TenantUse& use : uses) {
    tenants.Add(static_cast<double>(use.gathered_rows), {{"tenant", use.tenant}});
    waited.Add(static_cast<double>(use.throttled_messages), {{"tenant", use.tenant}});
  }
  out->push_back(tenants.Take());
  out->push_back(waited.Take());
}

void AddRegistrations(std::vector<prometheus::MetricFamily>* out) {
  const fabric::ofi::RegistrationCounters done = fabric::ofi::Registrations();
  out->push_back(Counter("engram_ofi_registered_bytes_total", "Memory registered with libfabric.")
                     .Add(static_cast<double>(done.bytes))
                     .Take());
  out->push_back(Counter("engram_ofi_registration_seconds_total", "How long that took.")
                     .Add(std::chrono::duration<double>(done.time).count())
                     .Take());
}

void AddNvme(const nvme::NvmeStore* store, std::vector<prometheus::MetricFamily>* out) {
  if (store == nullptr) return;
  const nvme::NvmeStore::Counters counters = store->counters();
  const auto count = [out](const char* name, const char* help, std::uint64_t value) {
    out->push_back(Counter(name, help).Add(static_cast<double>(value)).Take());
  };
  count("engram_nvme_rows_total", "Rows asked of the nvme tier.", counters.rows);
  count("engram_nvme_failed_rows_total", "Rows of blocks that could not be read or were damaged.",
        counters.failed_rows);
  count("engram_nvme_block_reads_total", "Blocks read from the device.", counters.ring.blocks);
  count("engram_nvme_block_read_bytes_total", "Bytes of them.", counters.ring.bytes);
  count("engram_nvme_block_errors_total", "Blocks that could not be read or were damaged.",
        counters.ring.failed);
  count("engram_nvme_written_bytes_total", "Bytes of rows written to the nvme tier.",
        counters.written_bytes);
  out->push_back(Counter("engram_nvme_cache_rows_total", "Rows looked for in the nvme row cache.")
                     .Add(static_cast<double>(counters.cache.hits), {{"result", "hit"}})
                     .Add(static_cast<double>(counters.cache.misses), {{"result", "miss"}})
                     .Take());
}

}  // namespace

std::vector<prometheus::MetricFamily> NodeMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> out;
  out.push_back(Gauge("engram_build_info", "Always 1; the version is a label.")
                    .Add(1, {{"program", "engram-poolserver"}, {"version", sources_.version}})
                    .Take());
  AddTiers(sources_, &out);
  if (auto figures = Look(sources_.loop)) AddLoop(*figures, *sources_.tiers, &out);
  AddGather(sources_.stream, &out);
  AddRegistrations(&out);
  AddNvme(sources_.nvme, &out);
  out.push_back(Counter("engram_load_bytes_total", "Bytes of replicas loaded from their source.")
                    .Add(static_cast<double>(sources_.loop->bytes_loaded()))
                    .Take());
  out.push_back(Counter("engram_pull_bytes_total", "Bytes of replicas pulled from other nodes.")
                    .Add(static_cast<double>(sources_.loop->bytes_pulled()))
                    .Take());
  return out;
}

}  // namespace engram::poolserver
