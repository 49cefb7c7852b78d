// Prefetcher: from submitted steps to settled layers.
#include <algorithm>

#include "client/part_slice.h"
#include "client/prefetcher.h"

namespace engram::client {

void Prefetcher::Progress() {
  reader_->Progress();
  if (pending_layers_ > 0) {
    const Instant now = clock_.Now();
    if (flying_ > 0) Gather(now);
    if (now >= next_due_) Overdue(now);
    if (unstarted_ > 0) StartMore();
  }
  ServeHints();
}

void Prefetcher::Gather(Instant now) {
  std::uint32_t left = flying_;
  for (std::uint32_t slot = 0; left > 0; ++slot) {
    if (!flights_[slot].active) continue;
    --left;
    GatherFlight(static_cast<RowReader::Slot>(slot), now);
  }
}

void Prefetcher::GatherFlight(RowReader::Slot slot, Instant now) {
  Flight& flight = flights_[slot];
  Work& work = works_[flight.work];
  for (std::uint32_t i = 0; i < flight.parts; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((flight.reported & bit) != 0) continue;
    const PartState state = reader_->State(slot, i);
    if (state == PartState::kPending) continue;
    flight.reported |= bit;
    Layer& layer = work.layers[flight.layer[i]];
    if (now >= layer.needed_by && !layer.late) CountLate(layer, layer.rows - layer.arrived);
    layer.arrived += flight.slice_rows == 0 ? layer.rows : flight.slice_rows;
    --layer.flights;
    if (state == PartState::kFailed) {
      layer.failed = true;
      const ReadFailure& failure = reader_->Failure(slot);
      if (work.failure.status == ReadStatus::kOk) work.failure = failure;
    }
    SettleLayer(work, layer);
  }
  if (!reader_->Done(slot)) return;
  reader_->Collect(slot);
  flight.active = false;
  --flying_;
  if (work.kind == StepKind::kPrefill) --prefill_flying_;
}

// Settles the layer if all of it was started and is over.
void Prefetcher::SettleLayer(Work& work, Layer& layer) {
  if (layer.flights > 0 || layer.next < layer.units) return;
  ReadCounters& counters = reader_->counters();
  if (!layer.failed) {
    layer.state = LayerState::kReady;
    counters.layers_ready.Add(1);
  } else if (layer.cancelled) {
    layer.state = LayerState::kCancelled;
    counters.layers_cancelled.Add(1);
  } else {
    layer.state = LayerState::kFailed;
    counters.layers_failed.Add(1);
  }
  --work.pending;
  --pending_layers_;
  ++settled_;
}

// ---- what is late ----

void Prefetcher::CountLate(Layer& layer, std::uint32_t rows) {
  layer.late = true;
  reader_->counters().layers_late.Add(1);
  reader_->counters().rows_late.Add(rows);
}

std::uint32_t Prefetcher::Missing(std::uint32_t index, std::uint32_t number) const {
  const Layer& layer = works_[index].layers[number];
  std::uint32_t rows = (layer.units - layer.next) * UnitRows(layer.part);
  for (std::uint32_t slot = 0; slot < flights_.size(); ++slot) {
    const Flight& flight = flights_[slot];
    if (!flight.active || flight.work != index) continue;
    for (std::uint32_t i = 0; i < flight.parts; ++i) {
      if (flight.layer[i] == number)
        rows += reader_->Missing(static_cast<RowReader::Slot>(slot), i);
    }
  }
  return rows;
}

void Prefetcher::HedgeLayer(std::uint32_t index, std::uint32_t number) {
  for (std::uint32_t slot = 0; slot < flights_.size(); ++slot) {
    const Flight& flight = flights_[slot];
    if (!flight.active || flight.work != index) continue;
    for (std::uint32_t i = 0; i < flight.parts; ++i) {
      if (flight.layer[i] == number) reader_->Hedge(static_cast<RowReader::Slot>(slot), i);
    }
  }
}

// Looks at every needed_by and deadline, and at when to look again. The reader ends what is flying
// at its deadline by itself.
void Prefetcher::Overdue(Instant now) {
  next_due_ = Instant::max();
  for (std::uint32_t index = 0; index < works_.size(); ++index) {
    Work& work = works_[index];
    if (!work.active || work.pending == 0) continue;
    const bool over = now >= work.deadline;
    if (!over) next_due_ = std::min(next_due_, work.deadline);
    for (std::uint32_t i = 0; i < work.layer_count; ++i) {
      Layer& layer = work.layers[i];
      if (layer.state != LayerState::kPending) continue;
      if (!layer.late && now >= layer.needed_by) {
        CountLate(layer, Missing(index, i));
        if (!over) HedgeLayer(index, i);
      } else if (!layer.late) {
        next_due_ = std::min(next_due_, layer.needed_by);
      }
      if (!over || layer.next == layer.units) continue;
      DropUnstarted(layer, ReadStatus::kTimedOut);
      if (work.failure.status == ReadStatus::kOk) work.failure.status = ReadStatus::kTimedOut;
      SettleLayer(work, layer);
    }
  }
}

// ---- what is not read ----

void Prefetcher::DropUnstarted(Layer& layer, ReadStatus why) {
  if (layer.next == layer.units) return;
  FillUnread(Slice(layer.part, layer.next, layer.units - layer.next), why);
  layer.next = layer.units;
  layer.failed = true;
  --unstarted_;
}

// What RowReader does to rows that it could not read.
void Prefetcher::FillUnread(const ReadPart& part, ReadStatus why) {
  const std::vector<std::byte>& poison = reader_->table().poison;
  ReadStatus* status = part.row_status;
  for (std::uint32_t run = 0; run < part.runs; ++run) {
    for (std::uint32_t i = 0; i < part.run_rows; ++i) {
      const std::size_t position = std::size_t{run} * part.run_rows + i;
      const bool skipped = part.id_kind != ReadPart::IdKind::kRowId &&
                           static_cast<std::int64_t>(IdAt(part, position)) < 0;
      *status++ = skipped ? ReadStatus::kOk : why;
      PutRow(part, run, i, skipped ? zero_row_.data() : poison.data(), poison.size());
    }
  }
}

void Prefetcher::Cancel(Ticket ticket, std::uint32_t number) {
  Work* work = Find(ticket);
  if (work == nullptr || number >= work->layer_count) return;
  Layer& layer = work->layers[number];
  if (layer.state != LayerState::kPending) return;
  layer.cancelled = true;
  const bool dropped = layer.next < layer.units;
  DropUnstarted(layer, ReadStatus::kFlushed);
  const std::uint32_t flights = layer.flights;
  for (std::uint32_t slot = 0; slot < flights_.size() && layer.flights > 0; ++slot) {
    const Flight& flight = flights_[slot];
    if (!flight.active || flight.work != ticket.index) continue;
    for (std::uint32_t i = 0; i < flight.parts; ++i) {
      if (flight.layer[i] == number) reader_->CancelPart(static_cast<RowReader::Slot>(slot), i);
    }
  }
  if (flights > 0) {
    Gather(clock_.Now());
  } else if (dropped) {
    SettleLayer(*work, layer);
  }
}

void Prefetcher::CancelAll(Ticket ticket) {
  const std::uint32_t count = layers(ticket);
  for (std::uint32_t i = 0; i < count; ++i) Cancel(ticket, i);
}

void Prefetcher::Release(Ticket ticket) {
  Work* work = Find(ticket);
  if (work == nullptr) return;
  CancelAll(ticket);
  work->active = false;
}

// ---- waiting ----

bool Prefetcher::Arm(Instant now, RowReader::Nap* nap) {
  nap->until = std::min(nap->until, next_due_);
  const bool idle = flying_ == 0 && unstarted_ == 0;
  if (idle && hints_waiting() && hints_.slot == RowReader::kNoSlot) return false;
  return (unstarted_ == 0 || flying_ > 0) && reader_->Arm(now, nap);
}

template <class Ready>
bool Prefetcher::WaitFor(Ready ready, Instant until) {
  if (ready()) return true;
  Instant now = clock_.Now();
  Instant spin_from = now;
  std::uint64_t seen = events();
  for (;;) {
    Progress();
    if (ready()) return true;
    now = clock_.Now();
    if (now >= until) return false;
    if (events() != seen) {
      seen = events();
      spin_from = now;
    } else if (now - spin_from >= reader_->options().wait.spin) {
      RowReader::Nap nap;
      nap.until = until;
      if (Arm(now, &nap)) nap.Sleep(now);
    }
  }
}

bool Prefetcher::Wait(Ticket ticket, std::uint32_t layer, Instant until) {
  return WaitFor([&] { return State(ticket, layer) != LayerState::kPending; }, until);
}

bool Prefetcher::WaitAll(Ticket ticket, Instant until) {
  return WaitFor([&] { return Done(ticket); }, until);
}

}  // namespace engram::client
