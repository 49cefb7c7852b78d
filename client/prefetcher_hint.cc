// Prefetcher: rows that nobody waits for. Hints and the pinned set are read while no step is under
// way, a few rows at a time, in a request that steps do not use, on the bulk lane.
#include <algorithm>

#include "client/part_slice.h"
#include "client/prefetcher.h"

namespace engram::client {
namespace {

// Of one request. So few that a step that comes meanwhile waits some microseconds for the thread.
constexpr std::uint32_t kHintRows = 96;
constexpr Duration kHintDeadline = std::chrono::seconds(2);
constexpr std::size_t kHintTokens = 16;  // addressed together

}  // namespace

void Prefetcher::OpenHints() {
  RowCache* const cache = reader_->options().cache.get();
  if (cache == nullptr) return;
  hints_.unit_rows = std::min(options_.ngram_rows, cache->unit_rows());
  hints_.units = std::max(options_.hint_rows / hints_.unit_rows, 1u);
  hints_.ids.resize(std::size_t{hints_.units} * hints_.unit_rows);
  hints_.rows.resize(hints_.units);
  const std::uint32_t flight = std::max(kHintRows, hints_.unit_rows);
  const std::size_t row_bytes = reader_->table().layout.row_bytes();
  hints_.flight_ids.resize(flight);
  hints_.status.resize(flight);
  hints_.out.resize(flight * row_bytes);
  hints_.from.resize(hints_.unit_rows);
  if (options_.addressing != nullptr)
    hints_.token_ids.resize(kHintTokens * options_.addressing->columns());
}

// ---- what is hinted ----

bool Prefetcher::HintUnit(const RowId* ids, std::uint32_t rows) {
  if (hints_.count == hints_.units) return false;
  const std::uint32_t at = (hints_.first + hints_.count++) % hints_.units;
  std::copy_n(ids, rows, &hints_.ids[std::size_t{at} * hints_.unit_rows]);
  hints_.rows[at] = static_cast<std::uint16_t>(rows);
  return true;
}

std::uint64_t Prefetcher::Hint(const ReadPart& part) {
  if (!reader_->UsesCache() || part.first_row > reader_->table().layout.rows()) return 0;
  const std::uint64_t limit =
      std::min(part.row_limit, reader_->table().layout.rows() - part.first_row);
  const std::uint32_t unit = part.run_rows % hints_.unit_rows == 0 ? hints_.unit_rows : 1;
  const std::uint64_t rows = std::uint64_t{part.runs} * part.run_rows;
  std::uint64_t taken = 0;
  std::array<RowId, kMostUnitRows> ids;
  for (std::uint64_t at = 0; at < rows; at += unit) {
    bool known = true;
    for (std::uint32_t i = 0; i < unit; ++i) {
      const std::uint64_t id = IdAt(part, at + i);
      known &= id < limit;
      ids[i] = RowId(id + part.first_row);
    }
    if (!known) continue;
    if (!HintUnit(ids.data(), unit)) break;
    taken += unit;
  }
  reader_->counters().rows_hinted.Add(taken);
  return taken;
}

SubmitStatus Prefetcher::Hint(const TokenSpan& tokens, std::uint64_t* taken) {
  *taken = 0;
  const Addressing* addressing = options_.addressing;
  if (addressing == nullptr) return Refuse(SubmitStatus::kNoAddressing);
  if (reader_->options().cache == nullptr) return SubmitStatus::kStarted;
  const std::uint32_t columns = addressing->columns();
  const std::size_t lookback = addressing->lookback();
  for (std::size_t at = 0; at < tokens.tokens.size(); at += kHintTokens) {
    if (hints_.count == hints_.units) break;
    TokenSpan some = tokens;
    const std::size_t count = std::min(kHintTokens, tokens.tokens.size() - at);
    some.tokens = tokens.tokens.subspan(at, count);
    if (!tokens.dead.empty()) some.dead = tokens.dead.subspan(at, count);
    // Later ones look back at the tokens before them; the first, at what the caller says.
    if (at > 0) {
      const std::size_t before = std::min(lookback, at);
      some.lookback = tokens.tokens.subspan(at - before, before);
      some.lookback_dead = {};
      if (!tokens.dead.empty()) some.lookback_dead = tokens.dead.subspan(at - before, before);
    }
    const std::span<RowId> ids(hints_.token_ids.data(), count * columns);
    bad_tokens_ = addressing->Rows(some, ids);
    if (!bad_tokens_.ok()) return Refuse(SubmitStatus::kBadTokens);
    ReadPart part;
    part.ids = ids.data();
    part.runs = static_cast<std::uint32_t>(count);
    part.run_rows = columns;
    part.run_id_stride = columns;
    part.row_limit = reader_->table().layout.rows();
    *taken += Hint(part);
  }
  return SubmitStatus::kStarted;
}

// ---- reading it ----

// Fills the flight from what `next` gives until it is full; units that the cache has are left out.
template <class Next>
std::uint32_t Prefetcher::LoadHints(Next next) {
  const RowCache& cache = *reader_->options().cache;
  const auto most = static_cast<std::uint32_t>(hints_.flight_ids.size());
  const std::uint32_t unit = hints_.unit_rows;
  std::uint32_t rows = 0;
  for (std::span<const RowId> ids; rows + unit <= most && !(ids = next(unit)).empty();) {
    // Whole n-grams come first in a request: a shorter one ends it.
    if (!hints_.pinning && cache.Has(ids)) continue;
    std::copy(ids.begin(), ids.end(), hints_.flight_ids.begin() + rows);
    rows += static_cast<std::uint32_t>(ids.size());
    if (ids.size() < unit) break;
  }
  return rows;
}

void Prefetcher::StartHints() {
  if (hints_.slot != RowReader::kNoSlot || flying_ > 0 || unstarted_ > 0) return;
  hints_.pinning = hints_.next_pinned < options_.pinned.size();
  hints_.first_pinned = hints_.next_pinned;
  const std::uint32_t rows =
      hints_.pinning ? LoadHints([&](std::uint32_t) -> std::span<const RowId> {
        if (hints_.next_pinned == options_.pinned.size()) return {};
        return options_.pinned[hints_.next_pinned++].ids;
      })
                     : LoadHints([&](std::uint32_t) -> std::span<const RowId> {
                         if (hints_.count == 0) return {};
                         const std::uint32_t at = hints_.first;
                         hints_.first = (at + 1) % hints_.units;
                         --hints_.count;
                         return {&hints_.ids[std::size_t{at} * hints_.unit_rows], hints_.rows[at]};
                       });
  if (rows == 0) return;
  ReadPart part;
  part.ids = hints_.flight_ids.data();
  part.run_rows = rows;
  part.row_limit = reader_->table().layout.rows();
  part.ngram_rows = hints_.unit_rows;
  part.out = hints_.out.data();
  part.row_stride = reader_->table().layout.row_bytes();
  part.row_status = hints_.status.data();
  ReadRequest request;
  request.parts = {&part, 1};
  request.deadline = clock_.Now() + kHintDeadline;
  request.lane = fabric::Lane::kBulk;
  hints_.slot = reader_->Start(request);
}

void Prefetcher::GatherHints() {
  if (hints_.slot == RowReader::kNoSlot || !reader_->Done(hints_.slot)) return;
  reader_->Collect(hints_.slot);
  hints_.slot = RowReader::kNoSlot;
  if (!hints_.pinning) return;
  // The pinned set was read in its order: the flight holds [first_pinned, next_pinned).
  const std::size_t row_bytes = reader_->table().layout.row_bytes();
  std::size_t row = 0;
  for (std::size_t i = hints_.first_pinned; i < hints_.next_pinned; ++i) {
    const std::vector<RowId>& ids = options_.pinned[i].ids;
    bool whole = true;
    for (std::size_t at = 0; at < ids.size(); ++at, ++row) {
      whole &= hints_.status[row] == ReadStatus::kOk;
      hints_.from[at] = &hints_.out[row * row_bytes];
    }
    if (whole) reader_->PinCached({ids, hints_.from.data(), HashOf(ids)});
  }
}

std::vector<HotNgram> Prefetcher::Hottest(std::size_t most) const {
  const RowCache* cache = reader_->options().cache.get();
  return cache == nullptr ? std::vector<HotNgram>() : cache->Hottest(most);
}

void Prefetcher::ServeHints() {
  if (!hints_outstanding()) return;
  GatherHints();
  if (hints_waiting()) StartHints();
}

}  // namespace engram::client
