// RowReader: from landed rows to what the caller is told.
#include <algorithm>
#include <cstring>

#include "client/part_slice.h"
#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {

// The last row of the part is closed: nothing that targets its memory is outstanding.
void RowReader::Settle(Request& request, Part& part) {
  if (part.state != PartState::kPending) return;
  if (sealed_) CheckSeals(request);
  if (part.open > 0 || part.state != PartState::kPending) return;
  const Instant now = options_.clock->Now();
  if (part.session_bits != 0 && options_.switches.check_lease_after_completion &&
      !request.routes->LeasesValid(part.session_bits, now)) {
    ReadAgain(request, part);
    if (part.open > 0) return;
  }
  Deliver(request, part, now);
}

// The leases ran out before the rows could be delivered (rule 4): the bytes may be those of
// recycled memory. Only the deadline bounds how often: the session needs time to come back.
void RowReader::ReadAgain(Request& request, Part& part) {
  counters_.leases_expired.Add(1);
  part.session_bits = 0;
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    Row& row = request.rows[position];
    if (row.state != RowState::kLanded) continue;
    ++part.open;
    row.status = ReadStatus::kExpired;
    if (Ending(request, part) != ReadStatus::kOk) {
      GiveUp(request, row, ReadStatus::kExpired);
      continue;
    }
    row.state = RowState::kQueued;
    request.retry[request.retry_count++] = position;
  }
}

void RowReader::Deliver(Request& request, Part& part, Instant now) {
  if (request.any_staged) DeliverStaged(request, part);
  if (part.copies > 0) DeliverCopies(request, part);
  if (request.joined_count > 0) DeliverJoins(request, part);
  if (part.fill_begin < part.fill_end) FillCache(request, part);
  if (part.row_status != nullptr)
    std::memset(part.row_status, static_cast<int>(ReadStatus::kOk), part.end - part.begin);
  if (part.failed > 0) DeliverFailures(request, part);
  if (part.split.split_bytes > 0) DeliverSplit(request, part);
  part.state = part.failed > 0 ? PartState::kFailed : PartState::kReady;
  request.failed += part.failed;
  counters_.rows_failed.Add(part.failed);
  counters_.rows_skipped.Add(part.skipped);
  counters_.rows_delivered.Add(part.end - part.begin - part.failed - part.skipped);
  if (--request.parts_open == 0) Finish(request, now);
}

void RowReader::DeliverStaged(Request& request, Part& part) {
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    const Row& row = request.rows[position];
    // Split rows are where they are wanted so far.
    if (row.state == RowState::kLanded && row.staged && row.out != request.Landing(row))
      std::memcpy(row.out, request.Landing(row), row_bytes_);
  }
}

void RowReader::DeliverCopies(Request& request, Part& part) {
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    Row& row = request.rows[position];
    if (row.state != RowState::kCopy) continue;
    const Row& original = request.rows[row.offset];
    if (original.state == RowState::kLanded || original.state == RowState::kCached) {
      std::memcpy(row.out, original.out, row_bytes_);
    } else {
      row.state = RowState::kFailed;
      row.status = original.status;
      ++part.failed;
    }
  }
}

void RowReader::DeliverFailures(Request& request, Part& part) {
  const std::vector<std::byte>& poison = options_.table->poison;
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    const Row& row = request.rows[position];
    if (row.state != RowState::kFailed) continue;
    std::memcpy(row.out, poison.data(), row_bytes_);
    if (part.row_status != nullptr) part.row_status[position - part.begin] = row.status;
  }
}

void RowReader::DeliverSplit(Request& request, Part& part) {
  const std::byte* row = request.staging + std::size_t{part.begin} * row_bytes_;
  for (std::uint32_t run = 0; run < part.split.runs; ++run) {
    for (std::uint32_t i = 0; i < part.split.run_rows; ++i, row += row_bytes_)
      PutRow(part.split, run, i, row, row_bytes_);
  }
}

void RowReader::Finish(Request& request, Instant now) {
  passes_.Exit(request.pass);
  request.routes = nullptr;
  counters_.requests.Add(1);
  const Duration elapsed = now - request.started;
  counters_.read_seconds[request.last_fabric_kind][ReadSecondsBucket(elapsed)].Add(1);
  counters_.read_ns_sum[request.last_fabric_kind].Add(
      static_cast<std::uint64_t>(std::max<Duration::rep>(elapsed.count(), 0)));
}

}  // namespace engram::client
