#include "placement/heat/heat_board.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace engram::placement {
namespace {

constexpr double kLn2 = 0.6931471805599453;
// Weights are brought down before they leave what a double holds exactly enough.
constexpr double kMostHalfLives = 500;
constexpr std::size_t kMostProcesses = 1024;  // of a client

}  // namespace

double HeatBoard::HalfLives(Instant from, Instant to) const {
  return static_cast<double>((to - from).count()) / static_cast<double>(half_life_.count());
}

double HeatBoard::Rate(double sum, Instant since, Instant now) const {
  const double age = std::max(HalfLives(since, now), 1e-9);
  const double seconds = static_cast<double>(half_life_.count()) * 1e-9 / kLn2;
  // What a constant rate would have summed up to since then.
  return sum * std::exp2(-age) / (seconds * (1 - std::exp2(-age)));
}

void HeatBoard::Rebase(Table* table, Instant now) const {
  const double age = HalfLives(table->since, now);
  if (age < kMostHalfLives) return;
  // By then the correction for youth is none, whatever `since` says a half-life later.
  const Instant since = now - 64 * half_life_;
  const double scale = std::exp2(64 - age);
  for (double& sum : table->shards) sum *= scale;
  for (auto& [rows, sum] : table->ngrams) sum *= scale;
  table->since = since;
}

void HeatBoard::DropColdNgrams(Table* table) const {
  if (table->ngrams.size() <= 2 * kMostNgrams) return;
  std::vector<double> sums;
  for (const auto& [rows, sum] : table->ngrams) sums.push_back(sum);
  std::nth_element(sums.begin(), sums.begin() + kMostNgrams, sums.end(), std::greater<>());
  const double least = sums[kMostNgrams];
  std::erase_if(table->ngrams, [&](const auto& entry) { return entry.second <= least; });
}

double HeatBoard::TakeTable(Instant now, Duration covers, const TableReads& reads) {
  Table& table = tables_[reads.table];
  if (table.shards.empty()) {
    table.since = now - covers;
    table.shards.resize(reads.shards);
  }
  Rebase(&table, now);
  const double weight = std::exp2(HalfLives(table.since, now));
  double rows = 0;
  for (const auto& [shard, count] : reads.reads) {
    if (shard >= table.shards.size()) continue;
    table.shards[shard] += weight * static_cast<double>(count);
    rows += static_cast<double>(count);
  }
  for (const NgramReads& ngram : reads.ngrams) table.ngrams[ngram.rows] += weight * ngram.reads;
  DropColdNgrams(&table);
  return rows;
}

void HeatBoard::ForgetSilent(Instant now) {
  std::erase_if(clients_,
                [&](const auto& entry) { return now - entry.second.last > kForgetClient; });
}

absl::Status HeatBoard::Take(Instant now, const HeatReport& report) {
  MutexLock lock(&mutex_);
  const std::pair key(report.client, report.tenant);
  if (!clients_.contains(key)) {
    ForgetSilent(now);
    if (clients_.size() >= kMostClients) {
      return absl::ResourceExhaustedError(
          absl::StrCat("heat is kept of ", kMostClients, " clients, and client ", report.client,
                       " is one more; give the processes of one replica one client name"));
    }
  }
  Client& client = clients_[key];
  if (client.since == Instant{}) client.since = now - report.covers;
  client.last = now;
  if (client.sequences.size() >= kMostProcesses) client.sequences.clear();
  std::uint64_t& sequence = client.sequences[report.process];
  if (report.sequence <= sequence) return absl::OkStatus();
  sequence = report.sequence;
  double rows = 0;
  for (const TableReads& table : report.tables) rows += TakeTable(now, report.covers, table);
  if (HalfLives(client.since, now) > kMostHalfLives) {
    client.reads *= std::exp2(64 - HalfLives(client.since, now));
    client.since = now - 64 * half_life_;
  }
  client.reads += rows * std::exp2(HalfLives(client.since, now));
  ++reports_;
  return absl::OkStatus();
}

std::vector<double> HeatBoard::Shards(Instant now, const TableUid& table) const {
  MutexLock lock(&mutex_);
  const auto it = tables_.find(table);
  if (it == tables_.end()) return {};
  std::vector<double> rates = it->second.shards;
  const double scale = Rate(1, it->second.since, now);
  for (double& rate : rates) rate *= scale;
  return rates;
}

std::vector<NgramReads> HeatBoard::Ngrams(Instant now, const TableUid& table,
                                          std::size_t most) const {
  std::vector<NgramReads> ngrams;
  MutexLock lock(&mutex_);
  const auto it = tables_.find(table);
  if (it == tables_.end()) return ngrams;
  const double scale = Rate(1, it->second.since, now);
  for (const auto& [rows, sum] : it->second.ngrams) ngrams.push_back({rows, sum * scale});
  std::stable_sort(ngrams.begin(), ngrams.end(),
                   [](const NgramReads& a, const NgramReads& b) { return a.reads > b.reads; });
  if (ngrams.size() > most) ngrams.resize(most);
  return ngrams;
}

std::vector<ClientReads> HeatBoard::Clients(Instant now) const {
  std::vector<ClientReads> out;
  MutexLock lock(&mutex_);
  for (const auto& [key, client] : clients_) {
    if (now - client.last > kForgetClient) continue;
    out.push_back({key.first, key.second, Rate(client.reads, client.since, now),
                   static_cast<std::uint32_t>(client.sequences.size()), client.last});
  }
  std::stable_sort(out.begin(), out.end(), [](const ClientReads& a, const ClientReads& b) {
    return a.reads_per_second > b.reads_per_second;
  });
  return out;
}

double HeatBoard::ReadsPerSecond(Instant now) const {
  MutexLock lock(&mutex_);
  double sum = 0;
  for (const auto& [key, client] : clients_) sum += Rate(client.reads, client.since, now);
  return sum;
}

std::uint64_t HeatBoard::reports() const {
  MutexLock lock(&mutex_);
  return reports_;
}

}  // namespace engram::placement
