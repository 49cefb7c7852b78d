// RowReader: second reads of late rows. A hedge lands in memory of the reader's own and is judged
// (seal, lease) when it completes; it replaces its row only once the row's first read is over.
#include <algorithm>
#include <cstring>

#include "client/read_request.h"
#include "client/row_reader.h"

namespace engram::client {

absl::Status RowReader::OpenHedges() {
  const std::uint32_t rows = options_.hedge_rows;
  if (rows == 0) return absl::OkStatus();
  hedges_.resize(rows);
  hedge_ops_.resize(rows);
  for (std::uint32_t i = rows; i-- > 0;) free_hedges_.push_back(i);
  hedge_memory_.resize(rows * (std::size_t{row_bytes_} + kSealBytes));
  auto region = Destination::Register(options_.fabrics, hedge_memory_);
  if (!region.ok()) return region.status();
  hedge_region_ = *std::move(region);
  return absl::OkStatus();
}

std::uint32_t RowReader::Hedge(Slot slot, std::uint32_t index) {
  Request& request = *requests_[slot];
  Part& part = request.parts[index];
  if (part.state != PartState::kPending || part.hedged || Ending(request, part) != ReadStatus::kOk)
    return 0;
  part.hedged = true;
  LeaveJoins(request, part);
  std::uint32_t chosen = 0;
  for (std::uint32_t at = part.begin; at < part.end && !free_hedges_.empty(); ++at) {
    HedgeRow& hedge = hedges_[free_hedges_.back()];
    if (request.rows[at].state != RowState::kInFlight || !ChooseHedge(request, at, &hedge))
      continue;
    hedge.state = HedgeRow::State::kReading;
    free_hedges_.pop_back();
    ++chosen;
  }
  hedges_reading_ += chosen;
  if (chosen == 0) return 0;
  std::uint32_t started = 0;
  for (auto& queue : queues_) started += SubmitHedges(*queue, slot);
  counters_.hedges_started.Add(started);
  return started;
}

// Fills `hedge` with the best route to the row that avoids its present node; false when there is
// none.
bool RowReader::ChooseHedge(const Request& request, std::uint32_t position, HedgeRow* hedge) {
  const Row& row = request.rows[position];
  const ShardSlot place = options_.table->layout.Locate(row.id);
  const NodeId& late = request.routes->sessions()[row.route->session].node;
  const RouteVersion pass = passes_.Enter();
  const Routes* routes = options_.board->Current();
  for (const Route& route : routes->Candidates(place.shard)) {
    if (routes->sessions()[route.session].node == late) continue;
    hedge->attempts = row.attempts;
    hedge->late_fabric = row.route->fabric;
    hedge->late_peer = row.route->region.peer;
    hedge->slot = request.slot;
    hedge->position = position;
    hedge->offset = place.slot * options_.table->layout.stride();
    hedge->serial = request.serial;
    hedge->id = row.id;
    hedge->deadline = request.deadline;
    hedge->pass = pass;
    hedge->routes = routes;
    hedge->route = &route;
    hedge->submitted = false;
    return true;
  }
  passes_.Exit(pass);
  return false;
}

// Submits the hedges of the request in `slot` that go over `queue`; those that it does not take are
// given up. Returns how many it took.
std::uint32_t RowReader::SubmitHedges(Queue& queue, std::uint32_t slot) {
  std::size_t count = 0;
  std::byte* const seals = hedge_memory_.data() + hedges_.size() * row_bytes_;
  for (std::uint32_t i = 0; i < hedges_.size(); ++i) {
    HedgeRow& hedge = hedges_[i];
    if (hedge.state != HedgeRow::State::kReading || hedge.submitted || hedge.slot != slot ||
        hedge.route->fabric != queue.index)
      continue;
    hedge.submitted = true;
    fabric::ReadOp& op = hedge_ops_[count++];
    op = fabric::ReadOp();
    op.region = hedge.route->region;
    op.offset = hedge.offset;
    op.cookie = std::uint64_t{options_.slots} << 32 | i;
    op.length = options_.table->layout.stride();
    op.lane = requests_[slot]->lane;
    op.segments = sealed_ ? 2 : 1;
    const fabric::MemoryRegion* region = hedge_region_->region(queue.index);
    op.local[0] = {hedge_memory_.data() + std::size_t{i} * row_bytes_, row_bytes_, region};
    if (sealed_) op.local[1] = {seals + std::size_t{i} * kSealBytes, kSealBytes, region};
  }
  if (count == 0) return 0;
  const std::size_t accepted = queue.queue->Submit({hedge_ops_.data(), count});
  queue.outstanding += static_cast<std::uint32_t>(accepted);
  for (std::size_t i = accepted; i < count; ++i)
    HedgeEnded(static_cast<std::uint32_t>(hedge_ops_[i].cookie), ReadStatus::kFlushed);
  return static_cast<std::uint32_t>(accepted);
}

// The row still waits for the very read that was late.
bool RowReader::IsWanted(const HedgeRow& hedge) const {
  const Request& request = *requests_[hedge.slot];
  if (!request.active || request.serial != hedge.serial) return false;
  const Row& row = request.rows[hedge.position];
  return row.state == RowState::kInFlight && row.attempts == hedge.attempts;
}

void RowReader::HedgeEnded(std::uint32_t index, ReadStatus status) {
  HedgeRow& hedge = hedges_[index];
  const std::byte* data = hedge_memory_.data() + std::size_t{index} * row_bytes_;
  bool good = status == ReadStatus::kOk && IsWanted(hedge);
  if (good && sealed_) {
    std::uint64_t seal;
    std::memcpy(
        &seal, hedge_memory_.data() + hedges_.size() * row_bytes_ + std::size_t{index} * kSealBytes,
        sizeof seal);
    good = options_.table->sealer.Check(hedge.id, data, seal);
    if (!good) counters_.seal_failures.Add(1);
  }
  // Rule 4: after the completion, by the lease that this read was made under.
  if (good && options_.switches.check_lease_after_completion)
    good = hedge.routes->LeasesValid(hedge.route->session_bit(), options_.clock->Now());
  passes_.Exit(hedge.pass);
  --hedges_reading_;
  hedge.routes = nullptr;
  hedge.route = nullptr;
  hedge.state = good ? HedgeRow::State::kWon : HedgeRow::State::kFree;
  if (good) {
    ++hedges_won_;
  } else {
    free_hedges_.push_back(index);
  }
}

// REQUIRES: hedge.state == kWon.
void RowReader::Free(HedgeRow& hedge) {
  hedge.state = HedgeRow::State::kFree;
  --hedges_won_;
  free_hedges_.push_back(static_cast<std::uint32_t>(&hedge - hedges_.data()));
}

// The first read of the row is over without a row: its hedge's bytes are the row, if it won.
bool RowReader::TakeHedge(Request& request, std::uint32_t position) {
  Row& row = request.rows[position];
  const auto hedge = std::find_if(hedges_.begin(), hedges_.end(), [&](const HedgeRow& one) {
    return one.state == HedgeRow::State::kWon && one.serial == request.serial &&
           one.position == position && one.attempts == row.attempts;
  });
  if (hedge == hedges_.end()) return false;
  const auto index = static_cast<std::size_t>(hedge - hedges_.begin());
  std::memcpy(request.Landing(row), hedge_memory_.data() + index * row_bytes_, row_bytes_);
  row.state = RowState::kLanded;
  // Should it be read again, then not from the node that was late.
  if (std::uint32_t{row.attempts} + 1 < options_.attempts) ++row.attempts;
  counters_.hedges_won.Add(1);
  Free(*hedge);
  Part& part = request.parts[row.part];
  if (--part.open == 0) Settle(request, part);
  return true;
}

// Flushes the first reads of rows whose hedge won, as soon as no other hedge could win against the
// same peer: one flush takes them all.
void RowReader::FlushLosers() {
  for (HedgeRow& hedge : hedges_) {
    if (hedge.state != HedgeRow::State::kWon) continue;
    if (!IsWanted(hedge)) {
      Free(hedge);
      continue;
    }
    const bool more = hedges_reading_ > 0 &&
                      std::any_of(hedges_.begin(), hedges_.end(), [&](const HedgeRow& other) {
                        return other.state == HedgeRow::State::kReading &&
                               other.late_peer == hedge.late_peer &&
                               other.late_fabric == hedge.late_fabric;
                      });
    if (!more) Flush(requests_[hedge.slot]->rows[hedge.position]);
  }
}

// A hedge is under way at most until its request's deadline.
void RowReader::ExpireHedges(Instant now) {
  for (const HedgeRow& hedge : hedges_) {
    if (hedge.state != HedgeRow::State::kReading || now < hedge.deadline) continue;
    Queue& queue = *queues_[hedge.route->fabric];
    queue.queue->Abandon(hedge.route->region.peer);
    counters_.abandoned.Add(1);
    Drain(queue);
  }
}

void RowReader::CloseHedges() {
  for (const HedgeRow& hedge : hedges_) {
    if (hedge.state == HedgeRow::State::kReading) passes_.Exit(hedge.pass);
  }
}

}  // namespace engram::client
