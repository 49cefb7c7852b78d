// PoolService: what clients read, and what the planner makes of it. Answered on the thread that
// asks: a plan of a large pool takes a good part of a second, and the loop must not wait for it.
#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "placement/plan/pool_view.h"
#include "placement/rpc/calls.h"
#include "placement/rpc/pool_service.h"
#include "proto/convert.h"

namespace engram::placement {
namespace {

constexpr int kMostTablesInReport = 1024;
constexpr int kMostNgramsInReport = 4096;  // of a table
constexpr int kMostRowsInNgram = 64;
constexpr Duration kLeastCovered = std::chrono::milliseconds(100);
constexpr Duration kMostCovered = std::chrono::minutes(5);
constexpr std::size_t kMostNameBytes = 256;
constexpr std::uint32_t kMostListed = 100'000;
constexpr std::uint32_t kListed = 20;
constexpr std::uint32_t kStepsListed = 1'024;

Instant NowBoot() { return SystemClock::Get().Now(); }

absl::Status Exceeds(const char* field, int count, int limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("ReportHeatRequest.", field, " has ", count, " entries, the limit is ", limit));
}

// Shards that the table does not have, and tables that are gone, are left out: a client may know an
// older map.
absl::Status AddTable(const v1::TableHeat& from, const ClusterState& state, HeatReport* report) {
  const absl::StatusOr<TableUid> uid = wire::TableUidFromWire(from.table());
  if (!uid.ok()) return uid.status();
  if (from.shard_steps_size() != from.reads_size()) {
    return absl::InvalidArgumentError(absl::StrCat("TableHeat has ", from.shard_steps_size(),
                                                   " shard_steps and ", from.reads_size(),
                                                   " reads; there is one of each a shard"));
  }
  if (from.ngrams_size() > kMostNgramsInReport) {
    return Exceeds("tables.ngrams", from.ngrams_size(), kMostNgramsInReport);
  }
  const TableEntry* table = state.FindTable(*uid);
  if (table == nullptr) return absl::OkStatus();
  TableReads& to = report->tables.emplace_back();
  to.table = *uid;
  to.shards = table->layout->shards();
  std::uint64_t shard = 0;
  for (int i = 0; i < from.reads_size(); ++i) {
    shard += from.shard_steps(i);
    if (shard >= to.shards) break;
    to.reads.emplace_back(static_cast<std::uint32_t>(shard), from.reads(i));
  }
  for (const v1::NgramHeat& ngram : from.ngrams()) {
    if (ngram.rows_size() > kMostRowsInNgram) {
      return Exceeds("tables.ngrams.rows", ngram.rows_size(), kMostRowsInNgram);
    }
    const bool known = std::all_of(ngram.rows().begin(), ngram.rows().end(),
                                   [&](auto row) { return row < table->layout->rows(); });
    if (!known || ngram.rows().empty()) continue;
    const std::uint64_t sure = ngram.reads() - std::min(ngram.reads(), ngram.error());
    to.ngrams.push_back({{ngram.rows().begin(), ngram.rows().end()}, static_cast<double>(sure)});
  }
  return absl::OkStatus();
}

struct WarmShard {
  const TableEntry* table;
  std::uint32_t shard;
  double reads;
};

void AddShard(const WarmShard& warm, v1::GetHeatResponse* response) {
  auto* to = response->add_shards();
  to->set_table(wire::ToWire(warm.table->record.uid));
  to->set_table_name(warm.table->record.name.Full());
  to->set_shard(warm.shard);
  to->set_reads_per_second(warm.reads);
  for (const MapReplica& replica : warm.table->Replicas(ShardIndex(warm.shard))) {
    to->add_nodes(replica.node.name);
  }
}

// Its shards that were read are added to `warm`.
double AddTableHeat(const TableEntry& table, const std::vector<double>& heat,
                    std::vector<WarmShard>* warm, v1::GetHeatResponse* response) {
  double sum = 0;
  std::uint32_t read = 0;
  std::set<NodeId> nodes;
  for (std::uint32_t shard = 0; shard < table.layout->shards(); ++shard) {
    for (const MapReplica& replica : table.Replicas(ShardIndex(shard))) nodes.insert(replica.node);
    if (shard >= heat.size() || heat[shard] <= 0) continue;
    sum += heat[shard];
    ++read;
    warm->push_back({&table, shard, heat[shard]});
  }
  auto* to = response->add_tables();
  to->set_table(wire::ToWire(table.record.uid));
  to->set_table_name(table.record.name.Full());
  to->set_reads_per_second(sum);
  to->set_bytes_per_second(sum * table.layout->stride());
  to->set_nodes(static_cast<std::uint32_t>(nodes.size()));
  to->set_shards_read(read);
  return sum;
}

void AddNgrams(const TableEntry& table, const std::vector<NgramReads>& ngrams,
               v1::GetHeatResponse* response) {
  for (const NgramReads& ngram : ngrams) {
    auto* to = response->add_ngrams();
    to->set_table(wire::ToWire(table.record.uid));
    to->set_table_name(table.record.name.Full());
    to->set_reads_per_second(ngram.reads);
    to->set_spec_digest(table.record.spec_digest);
    for (const std::uint64_t row : ngram.rows) to->add_rows(row);
  }
}

template <class Entries>
void KeepHottest(Entries* entries, std::uint32_t limit) {
  std::stable_sort(entries->begin(), entries->end(), [](const auto& a, const auto& b) {
    return a.reads_per_second() > b.reads_per_second();
  });
  const int most = static_cast<int>(std::min<std::uint32_t>(limit, kMostListed));
  if (entries->size() > most) entries->DeleteSubrange(most, entries->size() - most);
}

v1::PlanStep ToWireStep(const PlanStep& step, const ClusterState& state) {
  v1::PlanStep out;
  out.set_table(wire::ToWire(step.table));
  const TableEntry* table = state.FindTable(step.table);
  if (table != nullptr) out.set_table_name(table->record.name.Full());
  out.set_shard(step.shard.value());
  if (step.from) {
    out.set_from(step.from->name);
    out.set_from_tier(wire::ToWire(step.from_tier));
  }
  if (step.to) {
    out.set_to(step.to->name);
    out.set_to_tier(wire::ToWire(step.to_tier));
  }
  out.set_goal(static_cast<v1::PlanGoal>(step.goal));
  out.set_reason(step.reason);
  out.set_bytes(step.bytes);
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* PoolService::ReportHeat(grpc::CallbackServerContext* context,
                                                  const v1::ReportHeatRequest* request,
                                                  v1::ReportHeatResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  if (request->tables_size() > kMostTablesInReport) {
    return Finish(context, Exceeds("tables", request->tables_size(), kMostTablesInReport));
  }
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const std::optional<Identity> caller = wire::CallerIdentity(*context);
  HeatReport report{request->caller().client(),
                    TenantOfCall(caller, request->caller()),
                    request->process(),
                    request->sequence(),
                    {},
                    std::clamp<Duration>(std::chrono::nanoseconds(request->covers_ns()),
                                         kLeastCovered, kMostCovered)};
  for (const std::string* name : {&request->caller().client(), &request->caller().tenant()}) {
    if (name->size() <= kMostNameBytes) continue;
    return Finish(context, absl::InvalidArgumentError(absl::StrCat(
                               "ReportHeatRequest names a client or tenant with ", name->size(),
                               " bytes, the limit is ", kMostNameBytes)));
  }
  for (const v1::TableHeat& table : request->tables()) {
    if (absl::Status added = AddTable(table, *state, &report); !added.ok()) {
      return Finish(context, added);
    }
  }
  heat_->Prune([&](const TableUid& uid) { return state->FindTable(uid) != nullptr; });
  response->set_report_every_ns(options_.report_every.count());
  const Instant now = NowBoot();
  if (absl::Status held = TakeHeld(now, caller, *request); !held.ok()) return Finish(context, held);
  response->set_budget_rows_per_second(state->TenantNamed(report.tenant).rows_per_second);
  if (absl::Status taken = heat_->Take(now, report); !taken.ok()) return Finish(context, taken);
  double sum = 0;
  for (const ClientReads& client : heat_->Clients(now)) {
    if (client.tenant == report.tenant) sum += client.reads_per_second;
  }
  response->set_rows_per_second(sum);
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolService::GetHeat(grpc::CallbackServerContext* context,
                                               const v1::GetHeatRequest* request,
                                               v1::GetHeatResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const std::uint32_t limit = request->limit() == 0 ? kListed : request->limit();
  const Instant now = NowBoot();
  const TableName wanted{request->name(), request->version()};
  std::vector<WarmShard> warm;
  double sum = 0;
  bool found = wanted.name.empty();
  for (const auto& [uid, table] : state->tables) {
    if (!wanted.name.empty() && table->record.name != wanted) continue;
    found = true;
    sum += AddTableHeat(*table, heat_->Shards(now, uid), &warm, response);
    AddNgrams(*table, heat_->Ngrams(now, uid, limit), response);
  }
  if (!found) {
    return Finish(context, absl::NotFoundError(absl::StrCat(
                               "table ", wanted.Full(),
                               " is unknown; `engramctl get tables` lists those there are")));
  }
  std::stable_sort(warm.begin(), warm.end(),
                   [](const WarmShard& a, const WarmShard& b) { return a.reads > b.reads; });
  if (warm.size() > limit) warm.resize(std::min(limit, kMostListed));
  for (const WarmShard& one : warm) AddShard(one, response);
  KeepHottest(response->mutable_tables(), limit);
  KeepHottest(response->mutable_ngrams(), limit);
  const std::int64_t unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  for (const ClientReads& client : heat_->Clients(now)) {
    auto* to = response->add_clients();
    to->set_client(client.client);
    to->set_tenant(client.tenant);
    to->set_reads_per_second(client.reads_per_second);
    to->set_processes(client.processes);
    to->set_last_report_unix_ms(unix_ms - (now - client.last) / std::chrono::milliseconds(1));
  }
  KeepHottest(response->mutable_clients(), limit);
  response->set_reads_per_second(sum);
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolService::GetPlan(grpc::CallbackServerContext* context,
                                               const v1::GetPlanRequest* request,
                                               v1::GetPlanResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const Turns::Turn turn = plan_turns_.Take();
  if (!turn) {
    return Finish(context, absl::ResourceExhaustedError(absl::StrCat(
                               "the controller is making ", plan_turns_.most(),
                               " plans for others, the limit at one time; ask again later")));
  }
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const Instant now = NowBoot();
  const PoolView view =
      ViewOf(*state, [&](const TableUid& uid) { return heat_->Shards(now, uid); });
  const PlanResult result = MakePlan(view, options_.limits);
  const std::uint32_t limit =
      std::min(kMostListed, request->limit() == 0 ? kStepsListed : request->limit());
  std::uint64_t bytes = 0;
  for (const PlanStep& step : result.plan) {
    bytes += step.bytes;
    if (static_cast<std::uint32_t>(response->steps_size()) < limit) {
      *response->add_steps() = ToWireStep(step, *state);
    }
  }
  response->set_rebalance(options_.rebalance);
  response->set_steps_total(result.plan.size());
  response->set_steps_later(result.steps_later);
  response->set_bytes_total(bytes);
  response->set_load_now(result.load_now);
  response->set_load_after(result.load_after);
  response->set_load_bound(result.load_bound);
  for (const std::string& text : result.unmet) response->add_unmet(text);
  return Finish(context, absl::OkStatus());
}

}  // namespace engram::placement
