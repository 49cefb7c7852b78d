#include "client/gpu/ring_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {
namespace {

absl::Status Wrong(const char* what, std::uint64_t value, const char* wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("ring: ", what, " is ", value, "; wanted is ", wanted));
}

}  // namespace

absl::Status RingService::Check(const RingShape& shape, std::size_t layers) {
  if (shape.slots < 2 || shape.slots > 64) return Wrong("slots", shape.slots, "2 to 64");
  if (shape.layers == 0 || shape.layers > kMaxRingLayers)
    return Wrong("layers", shape.layers, "1 to 16");
  if (shape.layers != layers) return Wrong("layers", shape.layers, "one for each layer's rows");
  if (shape.columns == 0 || shape.columns > 1u << 16)
    return Wrong("columns", shape.columns, "1 to 65536");
  if (shape.max_tokens == 0 || shape.max_tokens > 1u << 20)
    return Wrong("max_tokens", shape.max_tokens, "1 to 1048576");
  if (shape.layer_rows() > 1u << 30)
    return Wrong("rows of a layer", shape.layer_rows(), "at most 2^30: fewer tokens or columns");
  if (shape.row_bytes == 0) return Wrong("row_bytes", 0, "at least 1");
  if (shape.row_stride < shape.row_bytes || shape.row_stride % 8 != 0)
    return Wrong("row_stride", shape.row_stride, "at least row_bytes, and a multiple of 8");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RingService>> RingService::Open(const RingView& view,
                                                               StepReads* reads,
                                                               const Options& options) {
  if (absl::Status status = Check(view.shape, options.layers.size()); !status.ok()) return status;
  return std::unique_ptr<RingService>(new RingService(view, reads, options));
}

RingService::RingService(const RingView& view, StepReads* reads, const Options& options)
    : view_(view),
      reads_(*reads),
      options_(options),
      slots_(view.shape.slots),
      layers_(view.shape.layers) {
  for (std::uint32_t i = 0; i < view_.shape.slots; ++i) {
    slots_[i].taken = model_.Load(&view_.words(i).drained_seq);
    slots_[i].told.resize(view_.shape.layers);
  }
}

bool RingService::Serve() {
  if (closed_) return false;
  bool moved = false;
  for (std::uint32_t i = 0; i < view_.shape.slots; ++i) moved |= Take(i);
  if (active_ > 0) reads_.Progress();
  for (std::uint32_t i = 0; i < view_.shape.slots; ++i) moved |= Settle(i);
  return moved;
}

// Takes what the slot was rung for, if it was.
bool RingService::Take(std::uint32_t index) {
  Slot& slot = slots_[index];
  SlotWords& words = view_.words(index);
  Rung rung;
  if (!WasRung(model_, words, slot.taken, &rung)) return false;
  if (slot.active) {
    // The GPU gave the older step up. From here on nothing of it lands.
    ++counters_.superseded;
    End(index);
  }
  Ticket ticket;
  const StepReads::Started started = Start(index, rung, &ticket);
  if (started == StepReads::Started::kBusy) {
    ++counters_.busy;
    return false;
  }
  slot.taken = rung.sequence;
  slot.ticket = ticket;
  slot.active = true;
  slot.pending = view_.shape.layers;
  std::fill(slot.told.begin(), slot.told.end(), false);
  ++active_;
  ++counters_.steps;
  TellDrained(model_, words, rung.sequence);
  if (started == StepReads::Started::kRefused) {
    ++counters_.refused;
    for (std::uint32_t i = 0; i < view_.shape.layers; ++i) Tell(index, i, LayerEnd::kNotRead);
    End(index);
  } else if (rung.tokens == 0) {
    for (std::uint32_t i = 0; i < view_.shape.layers; ++i) Tell(index, i, LayerEnd::kReady);
    End(index);
  }
  return true;
}

StepReads::Started RingService::Start(std::uint32_t index, const Rung& rung, Ticket* ticket) {
  const RingShape& shape = view_.shape;
  if (rung.tokens > shape.max_tokens || rung.kind > static_cast<Word>(StepKind::kPrefill))
    return StepReads::Started::kRefused;
  if (rung.tokens == 0) return StepReads::Started::kStarted;
  const Instant now = options_.clock->Now();
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    const Layer& layer = options_.layers[i];
    ReadPart& part = layers_[i].rows;
    part = ReadPart{};
    part.ids = view_.ids(index) + std::size_t{i} * shape.columns * shape.id_bytes();
    part.id_kind = shape.wide_ids ? ReadPart::IdKind::kInt64 : ReadPart::IdKind::kInt32;
    part.runs = rung.tokens;
    part.run_rows = shape.columns;
    part.run_id_stride = std::size_t{shape.layers} * shape.columns;
    part.first_row = layer.first_row;
    part.row_limit = layer.row_limit;
    part.ngram_rows = options_.ngram_rows;
    part.out = view_.rows(index, i);
    part.row_stride = shape.row_stride;
    part.run_stride = std::size_t{shape.columns} * shape.row_stride;
    part.row_status = reinterpret_cast<ReadStatus*>(view_.failed(index, i));
    layers_[i].needed_by = layer.needed_in > Duration{} ? now + layer.needed_in : Instant::max();
  }
  Step step;
  step.kind = static_cast<StepKind>(rung.kind);
  step.layers = layers_;
  step.deadline = now + options_.timeout;
  step.destination = options_.destination;
  return reads_.Submit(step, ticket);
}

// Tells of the layers that are settled now.
bool RingService::Settle(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (!slot.active) return false;
  const std::uint32_t before = slot.pending;
  for (std::uint32_t i = 0; i < view_.shape.layers; ++i) {
    if (slot.told[i]) continue;
    switch (reads_.State(slot.ticket, i)) {
      case LayerState::kPending: break;
      case LayerState::kReady: Tell(index, i, LayerEnd::kReady); break;
      case LayerState::kFailed: Tell(index, i, LayerEnd::kRowsFailed); break;
      case LayerState::kCancelled:
      case LayerState::kUnknown: Tell(index, i, LayerEnd::kNotRead); break;
    }
  }
  if (slot.pending == before) return false;
  if (slot.pending == 0) End(index);
  return true;
}

void RingService::Tell(std::uint32_t index, std::uint32_t layer, LayerEnd end) {
  Slot& slot = slots_[index];
  if (HasRows(end) && !reads_.Flush()) end = LayerEnd::kNotRead;
  slot.told[layer] = true;
  --slot.pending;
  ++(end == LayerEnd::kReady ? counters_.layers_ready : counters_.layers_failed);
  TellDone(model_, view_.words(index), layer, slot.taken, end);
}

// The slot is free again; layers that nobody was told of are never told.
void RingService::End(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.ticket) reads_.Release(slot.ticket);
  slot.ticket = Ticket{};
  slot.active = false;
  --active_;
}

void RingService::Close() {
  if (closed_) return;
  closed_ = true;
  for (std::uint32_t index = 0; index < view_.shape.slots; ++index) {
    Slot& slot = slots_[index];
    const bool was_active = slot.active;
    if (was_active) End(index);
    Rung rung;
    if (WasRung(model_, view_.words(index), slot.taken, &rung)) {
      slot.taken = rung.sequence;
      std::fill(slot.told.begin(), slot.told.end(), false);
      TellDrained(model_, view_.words(index), rung.sequence);
    } else if (!was_active) {
      continue;
    }
    for (std::uint32_t i = 0; i < view_.shape.layers; ++i) {
      if (!slot.told[i]) TellDone(model_, view_.words(index), i, slot.taken, LayerEnd::kNotRead);
    }
  }
}

}  // namespace engram::client::gpu
