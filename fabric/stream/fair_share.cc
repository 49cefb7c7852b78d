#include "fabric/stream/fair_share.h"

#include <algorithm>

namespace engram::fabric::stream {
namespace {

constexpr double kNs = 1e9;

double Most(double rate) {
  return std::max(1.0, rate * static_cast<double>(FairShare::kBurst.count()) / kNs);
}

}  // namespace

void FairShare::Fill(Bucket* bucket, Instant now) {
  if (now <= bucket->filled) return;
  const double seconds = static_cast<double>((now - bucket->filled).count()) / kNs;
  bucket->tokens = std::min(Most(bucket->rate), bucket->tokens + seconds * bucket->rate);
  bucket->filled = now;
}

void FairShare::SetBudget(Instant now, const std::string& tenant, std::uint64_t rows_per_second) {
  const auto found = buckets_.find(tenant);
  if (found == buckets_.end()) {
    if (rows_per_second == 0) return;
    Bucket bucket;
    bucket.rate = static_cast<double>(rows_per_second);
    bucket.tokens = Most(bucket.rate);
    bucket.filled = now;
    buckets_.emplace(tenant, std::move(bucket));
    return;
  }
  Bucket& bucket = found->second;
  Fill(&bucket, now);
  bucket.rate = static_cast<double>(rows_per_second);
  bucket.tokens = std::min(bucket.tokens, Most(bucket.rate));
}

bool FairShare::Ask(Instant now, const std::string& tenant, Session session, std::uint32_t rows,
                    Ticket ticket) {
  const auto found = buckets_.find(tenant);
  if (found == buckets_.end()) return true;
  Bucket& bucket = found->second;
  Fill(&bucket, now);
  const bool nobody_waits = std::all_of(bucket.turns.begin(), bucket.turns.end(),
                                        [](const auto& turn) { return turn.second.asked.empty(); });
  const auto [at, added] = bucket.turns.try_emplace(session);
  Turn& turn = at->second;
  if (turn.asked.empty()) turn.start = std::max(turn.start, bucket.time);
  if (nobody_waits && (bucket.rate == 0 || bucket.tokens > 0)) {
    bucket.tokens -= rows;
    bucket.time = turn.start;
    turn.start += rows;
    return true;
  }
  turn.asked.push_back({ticket, rows});
  ++waiting_;
  return false;
}

void FairShare::ReleaseFrom(Bucket* bucket, std::vector<Ticket>* out) {
  while (bucket->rate == 0 || bucket->tokens > 0) {
    auto next = bucket->turns.end();
    for (auto turn = bucket->turns.begin(); turn != bucket->turns.end(); ++turn) {
      if (turn->second.asked.empty()) continue;
      if (next == bucket->turns.end() || turn->second.start < next->second.start) next = turn;
    }
    if (next == bucket->turns.end()) break;
    Turn& turn = next->second;
    const Asked asked = turn.asked.front();
    turn.asked.pop_front();
    --waiting_;
    bucket->tokens -= asked.rows;
    bucket->time = turn.start;
    turn.start += asked.rows;
    out->push_back(asked.ticket);
  }
  // A session that waits for nothing and has had no more than the others starts anew.
  std::erase_if(bucket->turns, [&](const auto& turn) {
    return turn.second.asked.empty() && turn.second.start <= bucket->time;
  });
}

std::vector<FairShare::Ticket> FairShare::Release(Instant now) {
  std::vector<Ticket> out;
  for (auto& [tenant, bucket] : buckets_) {
    Fill(&bucket, now);
    ReleaseFrom(&bucket, &out);
  }
  std::erase_if(buckets_, [](const auto& entry) { return entry.second.rate == 0; });
  return out;
}

std::vector<FairShare::Ticket> FairShare::ReleaseAll() {
  std::vector<Ticket> out;
  for (auto& [tenant, bucket] : buckets_) {
    for (auto& [session, turn] : bucket.turns) {
      for (const Asked& asked : turn.asked) out.push_back(asked.ticket);
      waiting_ -= turn.asked.size();
      turn.asked.clear();
    }
  }
  return out;
}

std::optional<Instant> FairShare::Next() const {
  std::optional<Instant> next;
  for (const auto& [tenant, bucket] : buckets_) {
    const bool waits = std::any_of(bucket.turns.begin(), bucket.turns.end(),
                                   [](const auto& turn) { return !turn.second.asked.empty(); });
    if (!waits) continue;
    // One nanosecond later than the debt is paid: a bucket that is not empty.
    const double wait =
        bucket.rate == 0 || bucket.tokens > 0 ? 0.0 : -bucket.tokens / bucket.rate * kNs + 1000;
    const Instant when = bucket.filled + Duration(static_cast<std::int64_t>(wait));
    if (!next || when < *next) next = when;
  }
  return next;
}

}  // namespace engram::fabric::stream
