#include "placement/rpc/metrics.h"

#include <algorithm>
#include <functional>

namespace engram::placement {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

MetricFamily Family(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void Add(MetricFamily& family, double value, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

MetricFamily Single(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = Family(name, help, type);
  Add(family, value);
  return family;
}

MetricFamily TableStates(const ClusterState& state) {
  MetricFamily family =
      Family("engram_table_state", "1 for the state that a table is in.", MetricType::Gauge);
  for (const auto& [uid, table] : state.tables) {
    for (TableState one :
         {TableState::kLoading, TableState::kReady, TableState::kDeleting, TableState::kFailed}) {
      // A version that is loaded again while its predecessor goes away has two entries.
      if (table->record.state == TableState::kDeleting &&
          state.FindTable(table->record.name) != nullptr) {
        break;
      }
      Add(family, table->record.state == one ? 1 : 0,
          {{"table", table->record.name.Full()}, {"state", std::string(Name(one))}});
    }
  }
  return family;
}

MetricFamily Moves(const Counters& counters) {
  MetricFamily family = Family(
      "engram_moves_total", "Replicas loaded and retired; moves that ended.", MetricType::Counter);
  Add(family, static_cast<double>(counters.loads_done), {{"kind", "load"}, {"result", "ok"}});
  Add(family, static_cast<double>(counters.loads_failed), {{"kind", "load"}, {"result", "failed"}});
  Add(family, static_cast<double>(counters.retires_done), {{"kind", "retire"}, {"result", "ok"}});
  for (MoveKind kind :
       {MoveKind::kBalance, MoveKind::kDrain, MoveKind::kRepair, MoveKind::kManual}) {
    const auto at = static_cast<std::size_t>(kind);
    const std::string name(Name(kind));
    Add(family, static_cast<double>(counters.moves_done[at]), {{"kind", name}, {"result", "ok"}});
    Add(family, static_cast<double>(counters.moves_dropped[at]),
        {{"kind", name}, {"result", "dropped"}});
  }
  return family;
}

MetricFamily PlanSeconds(const Counters& counters) {
  MetricFamily family =
      Family("engram_plan_seconds", "Time that the planner took.", MetricType::Summary);
  ClientMetric metric;
  metric.summary.sample_count = counters.plans;
  metric.summary.sample_sum = static_cast<double>(counters.plan_ns) * 1e-9;
  family.metric.push_back(std::move(metric));
  return family;
}

constexpr std::size_t kHottest = 10;

// Bounded whatever the pool's size: the hottest shards by their rank, which tables are read.
void AddHeat(const ClusterState& state, const HeatBoard& heat, std::vector<MetricFamily>* out) {
  const Instant now = SystemClock::Get().Now();
  MetricFamily tables = Family("engram_table_reads_per_second", "Rows that clients read, decayed.",
                               MetricType::Gauge);
  std::vector<double> hottest(kHottest, 0);
  for (const auto& [uid, table] : state.tables) {
    if (table->record.state != TableState::kReady) continue;
    double sum = 0;
    for (const double reads : heat.Shards(now, uid)) {
      sum += reads;
      if (reads <= hottest.back()) continue;
      hottest.back() = reads;
      std::sort(hottest.begin(), hottest.end(), std::greater<>());
    }
    Add(tables, sum, {{"table", table->record.name.Full()}});
  }
  out->push_back(std::move(tables));
  MetricFamily shards = Family("engram_hottest_shards_reads_per_second",
                               "Rows read of the hottest shards, by rank.", MetricType::Gauge);
  for (std::size_t i = 0; i < kHottest; ++i) {
    Add(shards, hottest[i], {{"rank", std::to_string(i + 1)}});
  }
  out->push_back(std::move(shards));
  out->push_back(Single("engram_heat_reports_total", "Reports of clients that were taken.",
                        MetricType::Counter, static_cast<double>(heat.reports())));
}

// By tenant, one-sided reads included: clients say what they read.
void AddTenants(const ClusterState& state, const HeatBoard& heat, std::vector<MetricFamily>* out) {
  std::map<std::string, double> reads;
  for (const auto& [name, tenant] : state.tenants) reads[name] = 0;
  for (const ClientReads& client : heat.Clients(SystemClock::Get().Now())) {
    reads[client.tenant] += client.reads_per_second;
  }
  MetricFamily rates =
      Family("engram_tenant_rows_per_second", "Rows that the clients of a tenant read, decayed.",
             MetricType::Gauge);
  for (const auto& [name, rate] : reads) Add(rates, rate, {{"tenant", name}});
  MetricFamily budgets =
      Family("engram_tenant_budget_rows_per_second",
             "What the tenant may read; without a limit there is none.", MetricType::Gauge);
  for (const auto& [name, tenant] : state.tenants) {
    if (tenant->rows_per_second == 0) continue;
    Add(budgets, static_cast<double>(tenant->rows_per_second), {{"tenant", name}});
  }
  out->push_back(std::move(rates));
  out->push_back(std::move(budgets));
}

}  // namespace

std::uint64_t UnderReplicated(const ClusterState& state) {
  std::uint64_t count = 0;
  for (const auto& [uid, table] : state.tables) {
    if (table->record.state != TableState::kReady && table->record.state != TableState::kLoading) {
      continue;
    }
    for (const auto& chunk : table->chunks) {
      for (const auto& replicas : chunk->map.shards) {
        std::uint32_t serving = 0;
        for (const MapReplica& replica : replicas) {
          const NodeRecord* node = state.FindNode(replica.node);
          serving += replica.state == ReplicaState::kServing && node != nullptr && node->alive;
        }
        count += serving < table->record.options.replicas;
      }
    }
  }
  return count;
}

std::vector<MetricFamily> ControllerMetrics::Collect() const {
  // Only the leader knows how the pool is; the others say nothing of it.
  const bool leads = loop_->Refusal().ok();
  const std::shared_ptr<const ClusterState> state =
      leads ? loop_->snapshot() : std::make_shared<const ClusterState>();
  const Counters counters = loop_->counters();
  std::vector<MetricFamily> out;
  out.push_back(Family("engram_build_info", "1, labelled with what runs.", MetricType::Gauge));
  Add(out.back(), 1, {{"program", "engram-placement"}, {"version", version_}});
  out.push_back(Single("engram_map_epoch", "Epoch of the shard map.", MetricType::Gauge,
                       static_cast<double>(state->epoch.value())));
  out.push_back(Single("engram_placement_leader", "1 while this controller leads.",
                       MetricType::Gauge, leads ? 1 : 0));
  out.push_back(Single("engram_shards_under_replicated",
                       "Shards with fewer serving replicas on alive nodes than wanted.",
                       MetricType::Gauge, static_cast<double>(UnderReplicated(*state))));
  out.push_back(TableStates(*state));
  out.push_back(Moves(counters));
  out.push_back(Single("engram_move_bytes_total", "Stored bytes of the replicas loaded.",
                       MetricType::Counter, static_cast<double>(counters.loaded_bytes)));
  out.push_back(Single("engram_moves_under_way", "Moves stored and not ended.", MetricType::Gauge,
                       static_cast<double>(state->moves.size())));
  out.push_back(Single("engram_replicas_suspect_total",
                       "Replicas that a scrubber found to be wrong and that were withdrawn.",
                       MetricType::Counter, static_cast<double>(counters.replicas_suspect)));
  out.push_back(PlanSeconds(counters));
  AddHeat(*state, *heat_, &out);
  AddTenants(*state, *heat_, &out);
  return out;
}

}  // namespace engram::placement
