#include "fabric/fault/fault_queue.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace engram::fabric {

FaultQueue::FaultQueue(const FaultFabric& outer, Fabric& inner_fabric,
                       std::unique_ptr<ReadQueue> inner, std::uint32_t depth, std::uint64_t seed,
                       const Clock& clock)
    : outer_(outer),
      inner_fabric_(inner_fabric),
      clock_(clock),
      random_(seed),
      slots_(depth),
      inner_(std::move(inner)) {
  for (std::uint32_t i = depth; i > 0; --i) free_.push_back(i - 1);
}

bool FaultQueue::Prepare(std::uint32_t index, const ReadOp& op, const FaultOptions& options) {
  Slot& slot = slots_[index];
  if (slot.memory.size() < op.length) {
    slot.region.reset();
    slot.memory.resize(op.length);
    if (inner_fabric_.info().needs_registration) {
      auto region = inner_fabric_.Register(slot.memory, {});
      if (!region.ok()) return false;
      slot.region = *std::move(region);
    }
  }
  const Duration spread = std::max(options.delay_max - options.delay_min, Duration::zero());
  slot.op = op;
  slot.state = State::kPosted;
  slot.abandoned = false;
  slot.flip = Chance(options.flip_per_million);
  slot.due = clock_.Now() + options.delay_min +
             Duration(random_.Below(static_cast<std::uint64_t>(spread.count()) + 1));
  return true;
}

void FaultQueue::Free(std::uint32_t slot) {
  slots_[slot].state = State::kFree;
  free_.push_back(slot);
}

void FaultQueue::Delay(std::uint32_t index, ReadStatus status, Instant due) {
  Slot& slot = slots_[index];
  slot.state = State::kDelayed;
  slot.status = slot.abandoned ? ReadStatus::kFlushed : status;
  delayed_.emplace(slot.abandoned ? clock_.Now() : due, index);
}

std::size_t FaultQueue::Submit(std::span<const ReadOp> ops) {
  if (closed_) return 0;
  const FaultOptions options = outer_.options();
  std::size_t wanted = std::min(ops.size(), free_.size());
  if (Chance(options.partial_per_million)) wanted = random_.Below(wanted + 1);
  std::vector<ReadOp> batch;
  std::vector<std::uint32_t> taken;
  for (const ReadOp& op : ops.first(wanted)) {
    const std::uint32_t index = free_.back();
    if (!Prepare(index, op, options)) break;
    free_.pop_back();
    taken.push_back(index);
    if (Chance(options.unreachable_per_million)) continue;
    ReadOp& inner = batch.emplace_back(op);
    inner.cookie = index;
    inner.segments = 1;
    inner.local[0] = {slots_[index].memory.data(), op.length, slots_[index].region.get()};
  }
  const std::size_t posted = inner_->Submit(batch);
  // What the inner queue pushed back, and everything behind it, was not accepted.
  std::size_t accepted = taken.size();
  if (posted < batch.size()) {
    const auto first = std::find(taken.begin(), taken.end(), batch[posted].cookie);
    accepted = static_cast<std::size_t>(first - taken.begin());
  }
  for (std::size_t i = taken.size(); i > accepted; --i) Free(taken[i - 1]);
  std::size_t next = 0;
  for (std::size_t i = 0; i < accepted; ++i) {
    if (next < posted && batch[next].cookie == taken[i]) {
      ++next;
    } else {
      Delay(taken[i], ReadStatus::kUnreachable, slots_[taken[i]].due);
    }
  }
  return accepted;
}

void FaultQueue::TakeInnerCompletions() {
  ReadCompletion done[64];
  for (std::size_t count; (count = inner_->Poll(done)) > 0;) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::uint32_t>(done[i].cookie);
      Delay(index, done[i].status, slots_[index].due);
    }
  }
}

void FaultQueue::Land(Slot& slot) {
  if (slot.status != ReadStatus::kOk || slot.op.length == 0) return;
  if (slot.flip) {
    const std::uint64_t bit = random_.Below(std::uint64_t{slot.op.length} * 8);
    slot.memory[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  const std::byte* from = slot.memory.data();
  for (std::uint8_t i = 0; i < slot.op.segments; ++i) {
    const LocalSegment& to = slot.op.local[i];
    if (to.bytes > 0) memcpy(to.data, from, to.bytes);
    from += to.bytes;
  }
}

std::size_t FaultQueue::Poll(std::span<ReadCompletion> out) {
  if (closed_) return 0;
  TakeInnerCompletions();
  const Instant now = clock_.Now();
  std::size_t count = 0;
  while (count < out.size() && !delayed_.empty() && delayed_.begin()->first <= now) {
    const std::uint32_t index = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    Slot& slot = slots_[index];
    Land(slot);
    out[count++] = {slot.op.cookie, slot.status};
    Free(index);
  }
  return count;
}

int FaultQueue::ArmWait() {
  // A delay ends without any descriptor becoming readable.
  return closed_ || !delayed_.empty() ? -1 : inner_->ArmWait();
}

void FaultQueue::Abandon(PeerId peer) {
  if (closed_) return;
  inner_->Abandon(peer);
  TakeInnerCompletions();
  const Instant now = clock_.Now();
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state == State::kFree || slot.op.region.peer != peer) continue;
    slot.abandoned = true;
    if (slot.state == State::kPosted) continue;  // its inner completion is still to be polled
    std::erase_if(delayed_, [&](const auto& entry) { return entry.second == i; });
    Delay(i, ReadStatus::kFlushed, now);
  }
}

void FaultQueue::Close() {
  if (closed_) return;
  closed_ = true;
  inner_->Close();
  delayed_.clear();
}

}  // namespace engram::fabric
