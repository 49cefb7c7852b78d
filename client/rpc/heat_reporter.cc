#include "client/rpc/heat_reporter.h"

#include <algorithm>

#include "proto/convert.h"

namespace engram::client {
namespace {

constexpr Duration kShortest = std::chrono::milliseconds(100);
constexpr Duration kLongest = std::chrono::minutes(5);
constexpr std::size_t kMostNgrams = 256;  // of a table, in one report

void FillTable(TakenHeat taken, v1::TableHeat* to) {
  to->set_table(wire::ToWire(taken.table));
  std::uint32_t last = 0;
  for (std::uint32_t shard = 0; shard < taken.shards.size(); ++shard) {
    if (taken.shards[shard] == 0) continue;
    to->add_shard_steps(shard - last);
    to->add_reads(taken.shards[shard]);
    last = shard;
  }
  std::sort(taken.ngrams.begin(), taken.ngrams.end(),
            [](const auto& a, const auto& b) { return a.reads - a.error > b.reads - b.error; });
  for (std::size_t i = 0; i < std::min(taken.ngrams.size(), kMostNgrams); ++i) {
    const ReadHeat::Ngram& ngram = taken.ngrams[i];
    v1::NgramHeat* out = to->add_ngrams();
    for (const RowId row : ngram.rows) out->add_rows(row.value());
    out->set_reads(ngram.reads);
    out->set_error(ngram.error);
  }
}

}  // namespace

HeatReporter::HeatReporter(std::string client, std::string tenant, std::uint64_t process, Call call)
    : client_(std::move(client)),
      tenant_(std::move(tenant)),
      process_(process),
      call_(std::move(call)),
      last_(SystemClock::Get().Now()) {
  next_ = last_ + every_;
  loop_.Start([this](Instant now) { return Report(now); });
}

HeatReporter::~HeatReporter() {
  loop_.Stop();
  if (!told_open_) return;
  v1::ReportHeatRequest nothing;
  nothing.set_covers_ns(1);
  Send(std::move(nothing));
}

void HeatReporter::Hurry() {
  loop_.Post([this] { next_ = std::min(next_, SystemClock::Get().Now()); });
}

void HeatReporter::Add(const void* table, std::function<TakenHeat()> take) {
  {
    MutexLock lock(&mutex_);
    tables_[table] = std::move(take);
  }
  Hurry();
}

void HeatReporter::Remove(const void* table) {
  {
    MutexLock lock(&mutex_);
    tables_.erase(table);
  }
  Hurry();
}

TenantRate HeatReporter::tenant_rate() const {
  MutexLock lock(&mutex_);
  return tenant_rate_;
}

bool HeatReporter::Fill(v1::ReportHeatRequest* request) {
  MutexLock lock(&mutex_);
  for (const auto& [table, take] : tables_) {
    TakenHeat taken = take();
    v1::HeldTable* held = request->add_held();
    held->set_table(wire::ToWire(taken.table));
    held->set_name(taken.name);
    held->set_asked(taken.asked);
    if (std::all_of(taken.shards.begin(), taken.shards.end(), [](auto n) { return n == 0; }) &&
        taken.ngrams.empty()) {
      continue;
    }
    FillTable(std::move(taken), request->add_tables());
  }
  return request->held_size() > 0 || told_open_;
}

void HeatReporter::Send(v1::ReportHeatRequest request) {
  request.mutable_caller()->set_client(client_);
  request.mutable_caller()->set_tenant(tenant_);
  request.set_process(process_);
  request.set_sequence(++sequence_);
  v1::ReportHeatResponse response;
  if (!call_(request, &response).ok()) return;
  told_open_ = request.held_size() > 0;
  {
    MutexLock lock(&mutex_);
    tenant_rate_ = {
        response.budget_rows_per_second(),
        static_cast<std::uint64_t>(std::min(std::max(0.0, response.rows_per_second()), 1e18))};
  }
  if (response.report_every_ns() > 0) {
    every_ = std::clamp(Duration(response.report_every_ns()), kShortest, kLongest);
  }
}

Instant HeatReporter::Report(Instant now) {
  if (now < next_) return next_;
  v1::ReportHeatRequest request;
  request.set_covers_ns((now - last_).count());
  last_ = now;
  if (Fill(&request)) Send(std::move(request));
  next_ = SystemClock::Get().Now() + every_;
  return next_;
}

}  // namespace engram::client
