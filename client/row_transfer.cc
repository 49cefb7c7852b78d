// RowReader: from rows to read operations, and from completions back to rows.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {

namespace {

template <class Request>
bool EndsPart(const Request& request) {
  const std::uint32_t* at = request.order.data() + request.cursor;
  return request.cursor < request.order_count &&
         request.rows[at[0]].part != request.rows[at[-1]].part;
}

}  // namespace

// Submits `order` from the cursor on, one group after the other, until all is under way or a queue
// pushes back.
void RowReader::Submit(Request& request) {
  while (request.cursor < request.order_count) {
    const std::uint16_t group = request.rows[request.order[request.cursor]].route->group;
    Queue& queue = *queues_[request.routes->groups()[group].fabric];
    if (queue.reads_now) {
      ReadNow(request, queue, group);
      // The caller may use a part before the next one is read.
      if (request.in_part_order && EndsPart(request)) return;
      continue;
    }
    const std::size_t count = Prepare(request, queue, group);
    const std::size_t accepted = queue.queue->Submit({queue.ops.data(), count});
    for (std::size_t i = accepted; i < count; ++i)
      request.rows[request.order[request.cursor + i]].state = RowState::kQueued;
    request.cursor += static_cast<std::uint32_t>(accepted);
    request.in_flight += static_cast<std::uint32_t>(accepted);
    queue.outstanding += static_cast<std::uint32_t>(accepted);
    if (queue.completes_at_once) {
      Drain(queue);
      if (request.in_part_order && accepted == count && EndsPart(request)) return;
    }
    if (accepted < count && !(queue.completes_at_once && accepted > 0)) return;
  }
}

void RowReader::SetLane(Queue& queue, fabric::Lane lane) {
  if (queue.lane == lane) return;
  queue.lane = lane;
  for (fabric::ReadOp& op : queue.ops) op.lane = lane;
}

// Fills the queue's operations with the next rows of `group`; returns how many.
std::size_t RowReader::Prepare(Request& request, Queue& queue, std::uint16_t group) {
  const std::uint64_t cookie = std::uint64_t{request.slot} << 32;
  const std::uint32_t* order = request.order.data() + request.cursor;
  const std::size_t left = request.order_count - request.cursor;
  std::size_t limit = std::min(queue.batch, left);
  if (queue.completes_at_once && request.in_part_order)
    limit = std::min<std::size_t>(
        limit, request.parts[request.rows[order[0]].part].order_end - request.cursor);
  const Destination* destination = nullptr;
  bool staged = false;
  if (queue.needs_registration) {
    staged = request.destination == nullptr;
    destination = staged ? request.scratch_region.get() : request.destination;
    request.any_staged |= staged;
  }
  SetLane(queue, request.lane);
  // Looked up once: the compiler must take any store for one to the vectors themselves.
  Row* const rows = request.rows.data();
  std::uint64_t* const seals = request.scratch.data();
  fabric::ReadOp* const ops = queue.ops.data();
  std::size_t count = 0;
  for (; count < limit; ++count) {
    const std::uint32_t position = order[count];
    Row& row = rows[position];
    if (row.route->group != group) break;
    row.state = RowState::kInFlight;
    fabric::ReadOp& op = ops[count];
    op.region = row.route->region;
    op.offset = row.offset;
    op.cookie = cookie | position;
    op.local[0].data = row.out;
    op.local[1].data = reinterpret_cast<std::byte*>(&seals[position]);
    if (destination == nullptr) continue;
    row.staged = staged;
    if (staged) op.local[0].data = request.staging + std::size_t{position} * row_bytes_;
    op.local[0].region = destination->region(queue.index);
    op.local[1].region = request.scratch_region->region(queue.index);
  }
  return count;
}

// The next rows of `group` that belong to one part; returns how many. They count as landed: nothing
// looks at them before they are. 0: the first one lies outside of its region.
std::size_t RowReader::PrepareNow(Request& request, Queue& queue, std::uint16_t group) {
  const std::uint32_t stride = options_.table->layout.stride();
  const std::uint32_t* const order = request.order.data() + request.cursor;
  const std::size_t limit =
      std::min<std::size_t>(queue.batch, request.order_count - request.cursor);
  Row* const rows = request.rows.data();
  std::uint64_t* const from = queue.from.data();
  std::byte** const to = queue.to.data();
  const std::uint8_t part = rows[order[0]].part;
  std::size_t count = 0;
  for (; count < limit; ++count) {
    Row& row = rows[order[count]];
    const Route& route = *row.route;
    if (route.group != group || row.part != part || route.region.length < stride ||
        row.offset > route.region.length - stride)
      break;
    row.state = RowState::kLanded;
    from[count] = route.region.address + row.offset;
    to[count] = row.out;
  }
  return count;
}

// Mapped memory: the rows are there when this returns. Seals are checked while the rows are in the
// nearest cache, and the next rows are on their way to it.
void RowReader::ReadNow(Request& request, Queue& queue, std::uint16_t group) {
  const std::size_t count = PrepareNow(request, queue, group);
  const std::uint32_t* const order = request.order.data() + request.cursor;
  auto& counters = counters_.rows[static_cast<std::size_t>(queue.kind)];
  if (count == 0) {
    ++request.cursor;
    counters[static_cast<std::size_t>(ReadStatus::kRefused)].Add(1);
    return Failed(request, order[0], ReadStatus::kRefused);
  }
  CheckSeals(request);  // of rows that came another way
  auto& unchecked = request.unchecked;
  const std::size_t batch = sealed_ ? kSealBatch : count;
  for (std::size_t at = 0; at < count; at += batch) {
    const std::size_t rows = std::min(batch, count - at);
    std::uint64_t* const seals = sealed_ ? unchecked.seals.data() : nullptr;
    queue.queue->ReadNow(
        {row_bytes_, rows, queue.from.data() + at, queue.to.data() + at, seals, count - at - rows});
    if (!sealed_) break;
    for (std::size_t i = 0; i < rows; ++i) {
      unchecked.positions[i] = order[at + i];
      unchecked.ids[i] = request.rows[order[at + i]].id;
      unchecked.rows[i] = queue.to[at + i];
    }
    unchecked.count = static_cast<std::uint32_t>(rows);
    CheckSeals(request);
  }
  request.cursor += static_cast<std::uint32_t>(count);
  completions_ += count;
  counters[static_cast<std::size_t>(ReadStatus::kOk)].Add(count);
  counters_.bytes_received.Add(count * options_.table->layout.stride());
  request.last_fabric_kind = static_cast<std::uint8_t>(queue.kind);
  Part& part = request.parts[request.rows[order[0]].part];
  part.open -= static_cast<std::uint32_t>(count);
  if (part.open == 0) Settle(request, part);
}

void RowReader::Drain(Queue& queue) {
  const auto kind = static_cast<std::size_t>(queue.kind);
  std::uint64_t landed = 0;
  do {
    const std::size_t count = queue.queue->Poll(queue.completions);
    if (count == 0) break;
    queue.outstanding -= static_cast<std::uint32_t>(count);
    completions_ += count;
    for (std::size_t i = 0; i < count;) {
      if (queue.completions[i].cookie >> 32 == options_.slots) [[unlikely]] {
        const fabric::ReadCompletion& completion = queue.completions[i++];
        counters_.rows[kind][static_cast<std::size_t>(completion.status)].Add(1);
        HedgeEnded(static_cast<std::uint32_t>(completion.cookie), completion.status);
        continue;
      }
      const std::size_t run = Landed({queue.completions.data() + i, count - i}, queue.kind);
      landed += run;
      i += run;
      if (run > 0) continue;
      const fabric::ReadCompletion& completion = queue.completions[i++];
      counters_.rows[kind][static_cast<std::size_t>(completion.status)].Add(1);
      Request& request = *requests_[completion.cookie >> 32];
      --request.in_flight;
      Failed(request, static_cast<std::uint32_t>(completion.cookie), completion.status);
    }
  } while (queue.outstanding > 0);
  if (landed == 0) return;
  counters_.rows[kind][static_cast<std::size_t>(ReadStatus::kOk)].Add(landed);
  counters_.bytes_received.Add(landed * options_.table->layout.stride());
}

// Takes the successful completions at the front that belong to one part of one request, all at
// once; returns how many.
std::size_t RowReader::Landed(std::span<const fabric::ReadCompletion> completions,
                              FabricKind kind) {
  const std::uint64_t slot = completions[0].cookie >> 32;
  Request& request = *requests_[slot];
  Row* const rows = request.rows.data();
  const std::uint8_t part_index = rows[static_cast<std::uint32_t>(completions[0].cookie)].part;
  std::size_t count = 0;
  for (const fabric::ReadCompletion& completion : completions) {
    const auto position = static_cast<std::uint32_t>(completion.cookie);
    if (completion.status != ReadStatus::kOk || completion.cookie >> 32 != slot ||
        rows[position].part != part_index)
      break;
    Row& row = rows[position];
    row.state = RowState::kLanded;
    ++count;
    if (!sealed_) continue;
    auto& unchecked = request.unchecked;
    unchecked.positions[unchecked.count] = position;
    unchecked.ids[unchecked.count] = row.id;
    unchecked.rows[unchecked.count] = request.Landing(row);
    unchecked.seals[unchecked.count] = request.scratch[position];
    if (++unchecked.count == kSealBatch) CheckSeals(request);
  }
  if (count == 0) return 0;
  request.last_fabric_kind = static_cast<std::uint8_t>(kind);
  request.in_flight -= static_cast<std::uint32_t>(count);
  Part& part = request.parts[part_index];
  part.open -= static_cast<std::uint32_t>(count);
  if (part.open == 0) Settle(request, part);
  return count;
}

// Rows are checked many at a time, soon after they landed: several CRC chains run at once and the
// bytes are still in the cache (FABRIC 1e).
void RowReader::CheckSeals(Request& request) {
  const std::uint32_t count = std::exchange(request.unchecked.count, 0);
  const RowSealer& sealer = options_.table->sealer;
  const auto& landed = request.unchecked;
  if (count == 0) return;
  const std::size_t failed =
      sealer.CheckBatch(std::span(landed.ids).first(count), std::span(landed.rows).first(count),
                        std::span(landed.seals).first(count));
  if (failed == 0) return;
  counters_.seal_failures.Add(failed);
  std::array<std::uint32_t, kSealBatch> bad;
  std::uint32_t bad_count = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!sealer.Check(landed.ids[i], landed.rows[i], landed.seals[i]))
      bad[bad_count++] = landed.positions[i];
  }
  // All bad rows are open again before the first of them fails: that one must not settle its part
  // while another bad row still counts as landed.
  for (std::uint32_t i = 0; i < bad_count; ++i) ++request.parts[request.rows[bad[i]].part].open;
  for (std::uint32_t i = 0; i < bad_count; ++i) Failed(request, bad[i], ReadStatus::kCorrupt);
}

// REQUIRES: the row is counted in its part's `open` and nothing that targets it is outstanding.
void RowReader::Failed(Request& request, std::uint32_t position, ReadStatus status) {
  if (hedges_won_ > 0 && TakeHedge(request, position)) return;
  Row& row = request.rows[position];
  Part& part = request.parts[row.part];
  const ReadStatus ending = Ending(request, part);
  // A flush is news only when it was the deadline's: then this node was late.
  const bool late = ending == ReadStatus::kTimedOut;
  if (request.failure.status == ReadStatus::kOk && (status != ReadStatus::kFlushed || late)) {
    request.failure.status = late ? ReadStatus::kTimedOut : status;
    request.failure.row = row.id;
    if (row.route != nullptr)
      request.failure.node.name = request.routes->sessions()[row.route->session].node.name;
  }
  row.status = status;
  ++row.attempts;
  if (row.attempts == options_.attempts && MayComeBack(request, status)) row.attempts = 0;
  if (ending != ReadStatus::kOk) {
    GiveUp(request, row, ending);
  } else if (row.attempts == options_.attempts) {
    GiveUp(request, row, status);
  } else {
    row.state = RowState::kQueued;
    request.retry[request.retry_count++] = position;
    return;
  }
  if (part.open == 0) Settle(request, part);
}

// A node that cannot be reached while sessions are being opened: as with rows that have no route,
// the deadline alone bounds how long they are tried.
bool RowReader::MayComeBack(const Request& request, ReadStatus status) {
  return request.routes->incomplete() &&
         (status == ReadStatus::kUnreachable || status == ReadStatus::kRefused);
}

ReadStatus RowReader::Ending(const Request& request, const Part& part) {
  return part.ending != ReadStatus::kOk ? part.ending : request.ending;
}

// The row is poison from here on. The caller settles the part when its last row is closed.
void RowReader::GiveUp(Request& request, Row& row, ReadStatus status) {
  if (request.failure.status == ReadStatus::kOk) {
    request.failure.status = status;
    request.failure.row = row.id;
  }
  row.state = RowState::kFailed;
  row.status = status;
  Part& part = request.parts[row.part];
  ++part.failed;
  --part.open;
}

// Ends the read of a row that is in flight, and with it the others of its peer.
void RowReader::Flush(Row& row) {
  Queue& queue = *queues_[row.route->fabric];
  queue.queue->Abandon(row.route->region.peer);
  counters_.abandoned.Add(1);
  Drain(queue);
}

// Ends the reads that are in flight: of every peer, or only of peers whose rows can be read
// elsewhere. Their completions come through the queues at once.
void RowReader::FlushPeers(Request& request, bool only_replicated) {
  for (std::uint32_t position = 0; position < request.row_count && request.in_flight > 0;
       ++position) {
    Row& row = request.rows[position];
    if (row.state != RowState::kInFlight) continue;
    if (only_replicated &&
        request.routes->Candidates(options_.table->layout.Locate(row.id).shard).size() < 2)
      continue;
    Flush(row);
  }
}

// Gives up the rows of a part that were to be read yet. REQUIRES: part.ending is set and none of
// its rows is in flight.
void RowReader::Drop(Request& request, Part& part) {
  const auto dropped = [&](std::uint32_t position) {
    return position >= part.begin && position < part.end;
  };
  const auto order = request.order.begin();
  const auto retry = request.retry.begin();
  request.order_count = static_cast<std::uint32_t>(
      std::remove_if(order + request.cursor, order + request.order_count, dropped) - order);
  request.retry_count = static_cast<std::uint32_t>(
      std::remove_if(retry, retry + request.retry_count, dropped) - retry);
  request.in_part_order = false;
  for (std::uint32_t position = part.begin; position < part.end; ++position) {
    Row& row = request.rows[position];
    if (row.state == RowState::kQueued || row.state == RowState::kJoined)
      GiveUp(request, row, part.ending);
  }
  if (part.open == 0) Settle(request, part);
}

void RowReader::End(Request& request, ReadStatus why) {
  request.ending = why;
  request.order_count = request.cursor = request.retry_count = 0;
  while (request.in_flight > 0) FlushPeers(request, /*only_replicated=*/false);
  // What is not in flight will not be read any more: rows not submitted yet and rows to retry.
  CheckSeals(request);
  for (std::uint32_t position = 0; position < request.row_count; ++position) {
    Row& row = request.rows[position];
    if (row.state != RowState::kQueued && row.state != RowState::kJoined) continue;
    // A row that waited for a replica says so, and one that failed before says how.
    const bool waited =
        why == ReadStatus::kTimedOut && row.route == nullptr && row.state == RowState::kQueued;
    const bool failed = row.status != ReadStatus::kOk && row.status != ReadStatus::kFlushed;
    GiveUp(request, row, !waited ? why : failed ? row.status : ReadStatus::kNoReplica);
    Part& part = request.parts[row.part];
    if (part.open == 0) Settle(request, part);
  }
}

}  // namespace engram::client
