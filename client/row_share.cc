// RowReader: rows that are wanted several times and read once. Mapped rows are left out: reading
// one again costs no more than looking it up.
#include <algorithm>
#include <cstring>
#include <utility>

#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {
namespace {

std::size_t Hash(RowId id) { return id.value() * 0x9e3779b97f4a7c15u >> 32; }

}  // namespace

// How many rows from order[at] on are looked up together: a whole n-gram, or one row.
std::uint32_t RowReader::UnitAt(const Request& request, const Part& part, std::uint32_t ngram_rows,
                                std::uint32_t at) const {
  const std::uint32_t* order = request.order.data() + at;
  if (ngram_rows <= 1 || (order[0] - part.begin) % ngram_rows != 0 ||
      request.order_count - at < ngram_rows || order[ngram_rows - 1] - order[0] != ngram_rows - 1)
    return 1;
  for (std::uint32_t i = 1; i < ngram_rows; ++i) {
    if (request.rows[order[i]].route->path_class == PathClass::kMapped) return 1;
  }
  return ngram_rows;
}

// The rows seen so far are forgotten.
void RowReader::BeginSharing() {
  if (++seen_generation_ > 0) return;
  std::fill(seen_.begin(), seen_.end(), 0);
  seen_generation_ = 1;
}

// Of the part's rows from order[order_begin] on.
void RowReader::ShareDuplicates(Request& request, Part& part, std::uint32_t ngram_rows,
                                std::uint32_t order_begin) {
  std::uint32_t kept = order_begin;
  for (std::uint32_t at = order_begin; at < request.order_count;) {
    const std::uint32_t position = request.order[at];
    if (request.rows[position].route->path_class == PathClass::kMapped) {
      request.order[kept++] = position;
      ++at;
      continue;
    }
    const std::uint32_t rows = UnitAt(request, part, ngram_rows, at);
    at += rows;
    if (CopyInPart(request, position, rows)) {
      part.copies += rows;
      part.open -= rows;
      counters_.duplicates.Add(rows);
    } else if (!Join(request, position, rows)) {
      for (std::uint32_t i = 0; i < rows; ++i) request.order[kept++] = position + i;
    }
  }
  request.order_count = kept;
}

// An open-addressed set of the part's n-grams by their first id; the generation makes emptying it
// free.
bool RowReader::CopyInPart(Request& request, std::uint32_t position, std::uint32_t rows) {
  Row* const wanted = &request.rows[position];
  const std::size_t mask = seen_.size() - 1;
  std::size_t cell = Hash(wanted->id) & mask;
  for (; seen_[cell] >> 32 == seen_generation_; cell = (cell + 1) & mask) {
    const auto original = static_cast<std::uint32_t>(seen_[cell]);
    const auto equal = [&](std::uint32_t i) {
      const Row& row = request.rows[original + i];
      // Rows of an earlier message may be out of the cache by now.
      return row.id == wanted[i].id && (IsRead(row.state) || row.state == RowState::kCached);
    };
    std::uint32_t same = 0;
    while (same < rows && original + same < position && equal(same)) ++same;
    if (same < rows) continue;
    for (std::uint32_t i = 0; i < rows; ++i) {
      wanted[i].state = RowState::kCopy;
      wanted[i].offset = original + i;
    }
    return true;
  }
  seen_[cell] = std::uint64_t{seen_generation_} << 32 | position;
  return false;
}

// Takes the rows from a request that has them under way, if one of no lesser urgency does; else
// notes that this one has.
bool RowReader::Join(Request& request, std::uint32_t position, std::uint32_t rows) {
  if (flying_.empty()) return false;
  Row* const wanted = &request.rows[position];
  Flying& flying = flying_[Hash(wanted->id) & (flying_.size() - 1)];
  Request& other = *requests_[flying.slot];
  const auto usable = [&](std::uint32_t i) {
    const Row& row = other.rows[flying.position + i];
    return row.id == wanted[i].id && IsRead(row.state) &&
           row.part == other.rows[flying.position].part;
  };
  bool join = other.active && other.serial == flying.serial && &other != &request &&
              other.lane <= request.lane && other.ending == ReadStatus::kOk &&
              flying.position + rows <= other.row_count && other.joined_count < other.joined.size();
  if (join) {
    const Part& part = other.parts[other.rows[flying.position].part];
    join = part.state == PartState::kPending && part.ending == ReadStatus::kOk;
  }
  for (std::uint32_t i = 0; join && i < rows; ++i) join = usable(i);
  if (!join) {
    flying = {request.serial, request.slot, position};
    return false;
  }
  for (std::uint32_t i = 0; i < rows; ++i) wanted[i].state = RowState::kJoined;
  other.joined[other.joined_count++] = {request.serial, request.slot, position, flying.position,
                                        rows};
  return true;
}

// The part is judged and about to be reported: rows of others that waited for it are copied, or
// read by themselves where this part has none.
void RowReader::DeliverJoins(Request& request, Part& part) {
  for (std::uint32_t at = 0; at < request.joined_count; ++at) {
    Request::Joined& joined = request.joined[at];
    if (joined.from < part.begin || joined.from >= part.end || joined.rows == 0) continue;
    // Settling the other request may come back here.
    const std::uint32_t rows = std::exchange(joined.rows, 0);
    Request& other = *requests_[joined.slot];
    if (!other.active || other.serial != joined.serial) continue;
    Part& waiting = other.parts[other.rows[joined.position].part];
    if (waiting.state != PartState::kPending) continue;
    for (std::uint32_t i = 0; i < rows; ++i) {
      Row& row = other.rows[joined.position + i];
      if (row.state != RowState::kJoined) continue;
      if (request.rows[joined.from + i].state == RowState::kLanded) {
        std::memcpy(row.out, request.rows[joined.from + i].out, row_bytes_);
        row.state = RowState::kLanded;
        --waiting.open;
        counters_.rows_joined.Add(1);
      } else {
        row.state = RowState::kQueued;
        other.retry[other.retry_count++] = joined.position + i;
      }
    }
    if (waiting.open == 0) Settle(other, waiting);
  }
}

// A late part does not wait for reads of others any longer.
void RowReader::LeaveJoins(Request& request, Part& part) {
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    Row& row = request.rows[position];
    if (row.state != RowState::kJoined) continue;
    row.state = RowState::kQueued;
    if (std::uint32_t{row.attempts} + 1 < options_.attempts) ++row.attempts;
    request.retry[request.retry_count++] = position;
  }
}

}  // namespace engram::client
