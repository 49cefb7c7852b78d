// RowReader: from ids to rows with routes, at the start and at each retry.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {

template <class Id>
void RowReader::ResolveRun(Request& request, Part& part, const Id* ids, std::uint32_t count,
                           const ReadPart& from, std::byte* out) {
  const ShardLayout& layout = options_.table->layout;
  const Routes& routes = *request.routes;
  const std::uint64_t limit = std::min(from.row_limit, layout.rows() - from.first_row);
  const std::uint32_t stride = layout.stride();
  const auto part_index = static_cast<std::uint8_t>(&part - request.parts.data());
  Row* row = request.rows.data() + part.end;
  std::uint32_t* order = request.order.data() + request.order_count;
  std::uint32_t position = part.end;
  std::uint64_t session_bits = part.session_bits;
  for (std::uint32_t i = 0; i < count;
       ++i, ++row, ++position, ids += from.id_stride, out += from.row_stride) {
    std::uint64_t id;
    if constexpr (std::is_same_v<Id, RowId>) {
      id = ids->value();
    } else {
      id = static_cast<std::uint64_t>(static_cast<std::int64_t>(*ids));
    }
    row->id = RowId(id + from.first_row);
    row->out = out;
    row->route = nullptr;
    row->part = part_index;
    row->status = ReadStatus::kOk;
    row->attempts = 0;
    row->staged = 0;
    if (id >= limit) [[unlikely]] {
      if (!std::is_same_v<Id, RowId> && static_cast<std::int64_t>(id) < 0) {
        row->state = RowState::kSkipped;
        std::memset(out, 0, row_bytes_);
        ++part.skipped;
      } else {
        ++part.open;
        GiveUp(request, *row, ReadStatus::kInvalid);
      }
      continue;
    }
    const ShardSlot place = layout.Locate(row->id);
    const Route* route = routes.Best(place.shard);
    if (route == nullptr) [[unlikely]] {
      ++part.open;
      AwaitReplica(request, *row, position);
      continue;
    }
    row->route = route;
    row->offset = place.slot * stride;
    row->state = RowState::kQueued;
    session_bits |= route->session_bit();
    *order++ = position;
  }
  const auto queued = static_cast<std::uint32_t>(order - request.order.data());
  part.open += queued - request.order_count;
  part.end = position;
  part.session_bits = session_bits;
  request.order_count = queued;
}

// Rows [first, first + count) of a run.
void RowReader::ResolveRows(Request& request, Part& part, const ReadPart& from, std::uint32_t run,
                            std::uint32_t first, std::uint32_t count) {
  const std::size_t skip = run * from.run_id_stride + first * from.id_stride;
  std::byte* const out = part.split.split_bytes > 0
                             ? request.staging + std::size_t{part.end} * row_bytes_
                             : from.out + run * from.run_stride + first * from.row_stride;
  switch (from.id_kind) {
    case ReadPart::IdKind::kRowId:
      return ResolveRun(request, part, static_cast<const RowId*>(from.ids) + skip, count, from,
                        out);
    case ReadPart::IdKind::kInt32:
      return ResolveRun(request, part, static_cast<const std::int32_t*>(from.ids) + skip, count,
                        from, out);
    case ReadPart::IdKind::kInt64:
      return ResolveRun(request, part, static_cast<const std::int64_t*>(from.ids) + skip, count,
                        from, out);
  }
}

// The part's rows from order[order_begin] on are those that are read: no duplicates, nothing that
// the cache has.
void RowReader::Choose(Request& request, Part& part, std::uint32_t ngram_rows,
                       std::uint32_t order_begin) {
  request.row_count = part.end;
  if (!request.sends_messages) return;
  if (options_.share_duplicates) ShareDuplicates(request, part, ngram_rows, order_begin);
  if (options_.cache != nullptr) TakeCached(request, part, ngram_rows, order_begin);
}

void RowReader::Resolve(Request& request, Part& part, const ReadPart& from) {
  part.begin = part.end = request.row_count;
  part.row_status = from.row_status;
  part.fill_begin = part.fill_end = request.fill_count;
  BeginSharing();
  // A part that names no table rows at all is invalid row by row, not an overflow.
  ReadPart bounded = from;
  if (from.first_row > options_.table->layout.rows()) bounded.first_row = bounded.row_limit = 0;
  if (from.split_bytes > 0) {
    part.split = from;
    bounded.row_stride = row_bytes_;
    request.destination = nullptr;
  }
  if (request.destination != nullptr && from.runs > 0 && from.run_rows > 0) {
    const std::size_t extent =
        (from.runs - 1) * from.run_stride + (from.run_rows - 1) * from.row_stride + row_bytes_;
    if (!request.destination->Covers(from.out, extent)) request.destination = nullptr;
  }
  const bool first = &part == request.parts.data();
  if (first && request.sends_messages && request.routes->groups().size() == 1) {
    ResolveAndRead(request, part, bounded);
  } else {
    const std::uint32_t order_begin = request.order_count;
    for (std::uint32_t run = 0; run < from.runs; ++run)
      ResolveRows(request, part, bounded, run, 0, from.run_rows);
    Choose(request, part, from.ngram_rows, order_begin);
  }
  if (options_.heat != nullptr && options_.heat->Sampled())
    CountHeat(request, part, from.ngram_rows);
}

// The first part of a request whose rows all go to one node: while it has many, the first messages
// are under way before the last rows are looked up. What is left goes with the other parts.
void RowReader::ResolveAndRead(Request& request, Part& part, const ReadPart& from) {
  const Queue& queue = *queues_[request.routes->groups()[0].fabric];
  std::uint32_t slice = kFirstMessage;
  const std::uint32_t unit = std::max(from.ngram_rows, 1u);
  ++part.open;  // it is not over before its last row is known
  std::uint32_t order_begin = request.order_count, chosen = part.begin;
  for (std::uint32_t run = 0; run < from.runs; ++run) {
    for (std::uint32_t first = 0; first < from.run_rows;) {
      const std::uint32_t count = std::min(from.run_rows - first, slice);
      ResolveRows(request, part, from, run, first, count);
      first += count;
      // N-grams stay whole.
      if (part.end - chosen < slice || (part.end - part.begin) % unit != 0) continue;
      Choose(request, part, from.ngram_rows, order_begin);
      part.order_end = request.order_count;
      Submit(request);
      order_begin = request.order_count;
      chosen = part.end;
      slice = static_cast<std::uint32_t>(queue.batch);
    }
  }
  Choose(request, part, from.ngram_rows, order_begin);
  --part.open;
}

// Rows that are read from the pool count for their shard; n-grams count wherever their rows come
// from, for what is hot in a cache is what to keep there.
void RowReader::CountHeat(const Request& request, const Part& part, std::uint32_t ngram_rows) {
  ReadHeat& heat = *options_.heat;
  const ShardLayout& layout = options_.table->layout;
  for (std::uint32_t at = part.begin; at < part.end; ++at) {
    const Row& row = request.rows[at];
    if (IsRead(row.state)) heat.CountRow(layout.Locate(row.id).shard);
  }
  const std::uint32_t unit = ngram_rows > 1 ? ngram_rows : 1;
  if (unit > ReadHeat::kMostRows || !heat.BeginNgrams()) return;
  std::array<RowId, ReadHeat::kMostRows> rows;
  for (std::uint32_t at = part.begin; at + unit <= part.end; at += unit) {
    bool whole = true;
    for (std::uint32_t i = 0; i < unit; ++i) {
      const Row& row = request.rows[at + i];
      whole &= row.state != RowState::kSkipped && row.state != RowState::kFailed;
      rows[i] = row.id;
    }
    if (whole) heat.CountNgram({rows.data(), unit});
  }
  heat.EndNgrams();
}

// Rows of one group become neighbours, so that each node gets whole messages; a stable counting
// sort.
void RowReader::SortByGroup(Request& request) {
  const std::size_t groups = request.routes->groups().size();
  if (groups <= 1 || groups > kMaxSortedGroups) return;
  request.in_part_order = false;
  std::fill_n(group_counts_.begin(), groups + 1, 0);
  for (std::uint32_t i = 0; i < request.order_count; ++i)
    ++group_counts_[request.rows[request.order[i]].route->group + 1];
  for (std::size_t group = 0; group < groups; ++group)
    group_counts_[group + 1] += group_counts_[group];
  for (std::uint32_t i = 0; i < request.order_count; ++i) {
    const std::uint32_t position = request.order[i];
    sorted_[group_counts_[request.rows[position].route->group]++] = position;
  }
  std::copy_n(sorted_.begin(), request.order_count, request.order.begin());
}

// Moves the request to the newest snapshot. Rows that landed by the old one are judged by the
// leases of the old one here, after their last completion (rule 4), because its sessions are
// forgotten then. REQUIRES: request.in_flight == 0.
void RowReader::Repin(Request& request, Instant now) {
  if (options_.board->Current() == request.routes) return;
  CheckSeals(request);
  for (std::uint32_t i = 0; i < request.part_count; ++i) {
    Part& part = request.parts[i];
    if (part.state != PartState::kPending) continue;
    if (options_.switches.check_lease_after_completion &&
        !request.routes->LeasesValid(part.session_bits, now))
      ReadAgain(request, part);
    part.session_bits = 0;
    for (std::uint32_t at = part.begin; at < part.end; ++at) request.rows[at].route = nullptr;
  }
  passes_.Exit(request.pass);
  request.pass = passes_.Enter();
  request.routes = options_.board->Current();
}

// Nobody serves the row. While sessions are being opened somebody may soon; else it fails now.
void RowReader::AwaitReplica(Request& request, Row& row, std::uint32_t position) {
  if (request.routes->incomplete()) {
    row.state = RowState::kQueued;
    request.retry[request.retry_count++] = position;
    return;
  }
  const bool named = row.status != ReadStatus::kOk && row.status != ReadStatus::kFlushed;
  GiveUp(request, row, named ? row.status : ReadStatus::kNoReplica);
}

// Sends every row of the retry list to its next candidate.
void RowReader::Reroute(Request& request, Instant now) {
  if (request.in_flight == 0) Repin(request, now);
  const ShardLayout& layout = options_.table->layout;
  request.order_count = request.cursor = 0;
  request.in_part_order = false;
  const std::uint32_t count = std::exchange(request.retry_count, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t position = request.retry[i];
    Row& row = request.rows[position];
    const ShardSlot place = layout.Locate(row.id);
    const auto candidates = request.routes->Candidates(place.shard);
    if (candidates.empty()) {
      AwaitReplica(request, row, position);
      continue;
    }
    row.route = &candidates[row.attempts % candidates.size()];
    row.offset = place.slot * layout.stride();
    request.parts[row.part].session_bits |= row.route->session_bit();
    request.order[request.order_count++] = position;
  }
  counters_.retries.Add(request.order_count);
  const unsigned shift = std::min(request.rounds++, kMaxBackoffShift);
  request.retry_at = now + kFirstBackoff * (1u << shift);
  SortByGroup(request);
  Submit(request);
  for (std::uint32_t i = 0; i < request.part_count && request.parts_open > 0; ++i) {
    if (request.parts[i].open == 0) Settle(request, request.parts[i]);
  }
}

}  // namespace engram::client
