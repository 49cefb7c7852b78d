// The C ABI of prefetched steps, over SharedPrefetcher.
#include <array>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/abi/handles.h"
#include "client/abi/layout.h"
#include "client/abi/memory.h"
#include "client/shared_prefetcher.h"
#include "engram/mutex.h"

using engram::client::LayerState;
using engram::client::SharedPrefetcher;
using engram::client::StepLayer;
using engram::client::Ticket;
namespace args = engram::client::abi;

namespace {

constexpr std::size_t kMaxSlots = 1024;
constexpr std::size_t kMaxLayers = engram::client::Prefetcher::kMaxLayers;

// Where a step lands, and what keeps its destination registered.
struct Place {
  args::StepLayout layout;
  bool has_layout = false;
  std::byte* out = nullptr;
  std::size_t out_bytes = 0;
  std::shared_ptr<args::Registered> registered;

  args::StepPlace step_place() const { return {has_layout ? &layout : nullptr, out}; }
  const engram::client::Destination* destination() const {
    return registered == nullptr ? nullptr : registered->destination.get();
  }
};

struct Slot {
  Place place;
  bool taken = false;  // by a submit that is under way
  Ticket last;
};

}  // namespace

struct engram_prefetcher : args::Handle {
  static constexpr const char* kName = "prefetcher";
  engram_table* table = nullptr;
  bool check_memory = false;
  engram::Mutex mutex;
  std::vector<std::unique_ptr<Slot>> slots ABSL_GUARDED_BY(mutex);
  // By the ticket's index: which step keeps a destination.
  struct Use {
    Ticket ticket;
    std::shared_ptr<args::Registered> registered;
  };
  std::vector<Use> uses ABSL_GUARDED_BY(mutex);
  std::unique_ptr<SharedPrefetcher> steps;  // goes first
};

engram_status args::CallSteps(engram_prefetcher* prefetcher, const StepsBody& body) {
  return Call(prefetcher, [&] { return body(*prefetcher->steps, *prefetcher->table); });
}

namespace {

engram_ticket Pack(Ticket ticket) { return std::uint64_t{ticket.generation} << 32 | ticket.index; }
Ticket Unpack(engram_ticket ticket) {
  return {static_cast<std::uint32_t>(ticket), static_cast<std::uint32_t>(ticket >> 32)};
}

absl::StatusOr<std::unique_ptr<engram_prefetcher>> OpenPrefetcher(
    engram_table* table, const engram_prefetcher_options* options) {
  if (absl::Status status = args::Check(table); !status.ok()) return status;
  auto handle = std::make_unique<engram_prefetcher>();
  auto taken = args::TakePrefetcherOptions(options, &handle->check_memory);
  if (!taken.ok()) return taken.status();
  auto steps = table->table->OpenPrefetcher(*taken);
  if (!steps.ok()) return steps.status();
  handle->table = table;
  handle->steps = *std::move(steps);
  engram::MutexLock lock(&handle->mutex);
  handle->uses.resize(taken->steps);
  return handle;
}

// ---- places ----

absl::StatusOr<Place> TakePlace(engram_prefetcher& prefetcher, const engram_layout* layout,
                                void* out, std::size_t out_bytes, engram_destination destination) {
  Place place;
  auto taken = args::TakeLayout(prefetcher.table->shape, layout);
  if (!taken.ok()) return taken.status();
  place.layout = *taken;
  place.has_layout = true;
  place.out = static_cast<std::byte*>(out);
  place.out_bytes = out_bytes;
  if (absl::Status status = args::CheckPlace(place.step_place(), out_bytes); !status.ok())
    return status;
  if (destination == 0) return place;
  auto found = prefetcher.table->destinations.Find(destination);
  if (!found.ok()) return found.status();
  place.registered = *std::move(found);
  absl::Status covers = args::Destinations::Covers(*place.registered, out, taken->bytes);
  if (!covers.ok()) return covers;
  return place;
}

absl::Status AddSlot(engram_prefetcher& prefetcher, const engram_slot_options* options,
                     std::uint32_t* slot) {
  if (slot == nullptr) return absl::InvalidArgumentError("slot is NULL");
  *slot = 0;
  engram_slot_options ours{};
  if (absl::Status status = args::TakeStruct("options", options, false, &ours); !status.ok())
    return status;
  auto place = TakePlace(prefetcher, ours.layout, ours.out, ours.out_bytes, ours.destination);
  if (!place.ok()) return place.status();
  if (absl::Status status = args::CheckWritable("out", ours.out, place->layout.bytes); !status.ok())
    return status;
  engram::MutexLock lock(&prefetcher.mutex);
  if (prefetcher.slots.size() == kMaxSlots)
    return absl::ResourceExhaustedError(
        absl::StrCat("the prefetcher has ", kMaxSlots, " slots: use them again"));
  prefetcher.slots.push_back(std::make_unique<Slot>(Slot{*std::move(place), false, {}}));
  *slot = static_cast<std::uint32_t>(prefetcher.slots.size());
  return absl::OkStatus();
}

// The slot of that number, which no step uses: the caller's until GiveBack. It stays where it is.
absl::StatusOr<Slot*> TakeSlot(engram_prefetcher& prefetcher, const engram_step& step) {
  if (step.layout != nullptr || step.out != nullptr || step.out_bytes != 0 || step.destination != 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "step->slot is ", step.slot,
        ", and layout, out, out_bytes or destination is set, too: they are the slot's"));
  engram::MutexLock lock(&prefetcher.mutex);
  if (step.slot > prefetcher.slots.size())
    return absl::InvalidArgumentError(absl::StrCat("step->slot is ", step.slot,
                                                   "; the prefetcher has slots 1 to ",
                                                   prefetcher.slots.size(), ": add it first"));
  Slot* const slot = prefetcher.slots[step.slot - 1].get();
  if (slot->taken || (slot->last && prefetcher.steps->layers(slot->last) > 0))
    return absl::ResourceExhaustedError(
        absl::StrCat("slot ", step.slot, " is in use: release its last step, or add another slot"));
  slot->taken = true;
  return slot;
}

absl::StatusOr<Place> PlaceOf(engram_prefetcher& prefetcher, const engram_step& step) {
  if (step.layout != nullptr)
    return TakePlace(prefetcher, step.layout, step.out, step.out_bytes, step.destination);
  Place place;
  place.out = static_cast<std::byte*>(step.out);
  place.out_bytes = step.out_bytes;
  if (step.destination == 0) return place;
  auto found = prefetcher.table->destinations.Find(step.destination);
  if (!found.ok()) return found.status();
  place.registered = *std::move(found);
  if (step.layer_rows != nullptr) return place;
  absl::Status covers = args::Destinations::Covers(*place.registered, step.out, step.out_bytes);
  if (!covers.ok()) return covers;
  return place;
}

// Whether rows may land there, as far as the prefetcher looks. REQUIRES: the layout is filled in.
absl::Status CheckMemory(const engram_prefetcher& prefetcher, const Place& place) {
  if (!prefetcher.check_memory) return absl::OkStatus();
  return args::CheckWritable("out", place.out, place.layout.bytes);
}

// The same of layers that say themselves where they land.
absl::Status CheckMemory(const engram_prefetcher& prefetcher, const Place& place,
                         std::span<const StepLayer> layers) {
  for (const StepLayer& layer : layers) {
    const engram::client::ReadPart& part = layer.rows;
    if (part.runs == 0) continue;
    const std::size_t bytes = (part.runs - 1) * part.run_stride +
                              (part.run_rows - 1) * part.row_stride +
                              prefetcher.table->shape.row_bytes;
    absl::Status status;
    if (place.registered != nullptr)
      status = args::Destinations::Covers(*place.registered, part.out, bytes);
    if (status.ok() && prefetcher.check_memory)
      status = args::CheckWritable("out", part.out, bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// ---- submitting ----

void Land(const args::StepLayout& layout, std::byte* out, engram::client::TokenStep* step) {
  engram::client::ReadPart part;
  args::PlacePart({&layout, out}, 0, &part);
  step->out = part.out;
  step->row_stride = part.row_stride;
  step->token_stride = part.run_stride;
  step->layer_stride = layout.layer_stride;
  step->split_bytes = part.split_bytes;
  step->rest = part.rest;
  step->rest_row_stride = part.rest_row_stride;
  step->rest_token_stride = part.rest_run_stride;
  step->first_column = layout.first_column;
  step->columns = layout.columns;
  step->column_step = layout.column_step;
}

absl::Status SubmitTokens(engram_prefetcher& prefetcher, const engram_step& step, Place& place,
                          engram::client::StepKind kind, Ticket* ticket) {
  const engram::Instant now = engram::SystemClock::Get().Now();
  const args::TableShape& shape = prefetcher.table->shape;
  const std::size_t room = place.has_layout ? place.layout.max_tokens : SIZE_MAX;
  auto tokens = args::TakeTokens(shape, step.tokens, room);
  if (!tokens.ok()) return tokens.status();
  if (!place.has_layout) {
    place.layout = args::PackedLayout(shape, tokens->span.tokens.size());
    const args::StepPlace packed{&place.layout, place.out};
    if (place.layout.bytes > 0) {
      if (absl::Status status = args::CheckPlace(packed, place.out_bytes); !status.ok())
        return status;
    }
  }
  if (absl::Status status = CheckMemory(prefetcher, place); !status.ok()) return status;
  const args::StepLayout& layout = place.layout;
  std::array<engram::Instant, kMaxLayers> needed_by;
  engram::client::TokenStep ours;
  ours.kind = kind;
  ours.tokens = tokens->span;
  ours.deadline = args::DeadlineOf(step.timeout_ns);
  ours.destination = place.destination();
  if (step.needed_in_ns != nullptr && layout.layers <= needed_by.size()) {
    for (std::size_t i = 0; i < layout.layers; ++i)
      needed_by[i] = args::NeededBy(now, step.needed_in_ns[i]);
    ours.needed_by = {needed_by.data(), layout.layers};
  }
  Land(layout, place.out, &ours);
  return prefetcher.steps->Submit(ours, ticket);
}

absl::Status SubmitRows(engram_prefetcher& prefetcher, const engram_step& step, const Place& place,
                        engram::client::StepKind kind, Ticket* ticket) {
  const engram::Instant now = engram::SystemClock::Get().Now();
  // Filling it in anew costs as much as a small step.
  static thread_local std::array<StepLayer, kMaxLayers> layers;
  if (step.layers > layers.size())
    return absl::InvalidArgumentError(
        absl::StrCat("step->layers is ", step.layers, "; the limit is ", layers.size()));
  for (std::uint32_t i = 0; i < step.layers; ++i) {
    auto layer = args::TakeLayer(prefetcher.table->shape, step.layer_rows, i, now,
                                 place.step_place(), step.fail_bad_ids == 1);
    if (!layer.ok()) return layer.status();
    layers[i] = *layer;
  }
  const std::span<const StepLayer> all(layers.data(), step.layers);
  absl::Status status =
      place.has_layout ? CheckMemory(prefetcher, place) : CheckMemory(prefetcher, place, all);
  if (!status.ok()) return status;
  return prefetcher.steps->Submit(
      engram::client::Step{kind, all, args::DeadlineOf(step.timeout_ns), place.destination()},
      ticket);
}

absl::Status CheckStep(const engram_prefetcher& prefetcher, const engram_step& step) {
  if ((step.tokens == nullptr) == (step.layer_rows == nullptr))
    return absl::InvalidArgumentError(
        "a step has either tokens or layer_rows; set one of them and leave the other NULL");
  if (step.fail_bad_ids > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("step->fail_bad_ids is ", step.fail_bad_ids, "; it is 0 or 1"));
  const std::string& uid = prefetcher.table->uid;
  if (step.table_uid != nullptr && uid.compare(step.table_uid) != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "the step is of table_uid ", step.table_uid, ", the prefetcher of ", uid, " (table ",
        prefetcher.table->shape.name, "): submit to the prefetcher of the step's own table"));
  return absl::OkStatus();
}

absl::Status Submit(engram_prefetcher& prefetcher, const engram_step* given,
                    engram_ticket* ticket) {
  if (ticket == nullptr) return absl::InvalidArgumentError("ticket is NULL");
  *ticket = 0;
  engram_step step{};
  if (absl::Status status = args::TakeStruct("step", given, false, &step); !status.ok())
    return status;
  auto kind = args::TakeKind(step.kind);
  if (!kind.ok()) return kind.status();
  if (absl::Status status = CheckStep(prefetcher, step); !status.ok()) return status;
  Slot* slot = nullptr;
  if (step.slot != 0) {
    auto found = TakeSlot(prefetcher, step);
    if (!found.ok()) return found.status();
    slot = *found;
  }
  absl::StatusOr<Place> place = slot != nullptr ? slot->place : PlaceOf(prefetcher, step);
  if (!place.ok()) return place.status();
  Ticket ours;
  absl::Status status = step.tokens != nullptr
                            ? SubmitTokens(prefetcher, step, *place, *kind, &ours)
                            : SubmitRows(prefetcher, step, *place, *kind, &ours);
  if (status.ok()) *ticket = Pack(ours);
  if (slot == nullptr && place->registered == nullptr) return status;
  engram::MutexLock lock(&prefetcher.mutex);
  if (slot != nullptr) slot->taken = false;
  if (!status.ok()) return status;
  if (slot != nullptr) slot->last = ours;
  prefetcher.uses[ours.index] = {ours, std::move(place->registered)};
  return status;
}

absl::Status Release(engram_prefetcher& prefetcher, Ticket ticket) {
  prefetcher.steps->Release(ticket);
  engram::MutexLock lock(&prefetcher.mutex);
  if (ticket.index < prefetcher.uses.size() && prefetcher.uses[ticket.index].ticket == ticket)
    prefetcher.uses[ticket.index] = {};
  return absl::OkStatus();
}

// ---- what became of it ----

absl::Status NoLayer(std::uint32_t layer) {
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no layer ", layer, " of that step: the step was released, or it has fewer layers"));
}

// What a caller that waited for the layer is told.
absl::Status ResultOf(engram_prefetcher& prefetcher, Ticket ticket, std::uint32_t layer) {
  const SharedPrefetcher::Outcome outcome = prefetcher.steps->OutcomeOf(ticket, layer);
  switch (outcome.state) {
    case LayerState::kReady: return absl::OkStatus();
    case LayerState::kFailed:
      return prefetcher.table->table->Explain(outcome.worst, outcome.failure);
    case LayerState::kPending:
      return absl::DeadlineExceededError(
          absl::StrCat("layer ", layer, " of the step is not there yet; its reads go on"));
    case LayerState::kCancelled:
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", layer, " of the step was cancelled"));
    case LayerState::kUnknown: break;
  }
  return NoLayer(layer);
}

absl::Status Wait(engram_prefetcher& prefetcher, Ticket ticket, std::int32_t layer,
                  std::uint64_t timeout_ns) {
  SharedPrefetcher& steps = *prefetcher.steps;
  const engram::Instant until = args::DeadlineOf(timeout_ns);
  if (layer >= 0) {
    steps.Wait(ticket, static_cast<std::uint32_t>(layer), until);
    return ResultOf(prefetcher, ticket, static_cast<std::uint32_t>(layer));
  }
  steps.WaitAll(ticket, until);
  if (steps.AllReady(ticket)) return absl::OkStatus();
  const std::uint32_t layers = steps.layers(ticket);
  if (layers == 0) return ResultOf(prefetcher, ticket, 0);
  for (std::uint32_t i = 0; i < layers; ++i) {
    if (absl::Status status = ResultOf(prefetcher, ticket, i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RowStatus(engram_prefetcher& prefetcher, Ticket ticket, std::uint32_t layer,
                       std::uint8_t* row_status, std::size_t capacity, std::size_t* rows) {
  absl::Status status = NoLayer(layer);
  prefetcher.steps->LookAt(ticket, layer, [&](const engram::client::ReadPart& part, bool pending) {
    const std::size_t count = std::size_t{part.runs} * part.run_rows;
    if (rows != nullptr) *rows = count;
    if (pending) {
      status = absl::FailedPreconditionError(
          absl::StrCat("layer ", layer, " of the step is not there yet: wait for it first"));
    } else if (capacity < count || (row_status == nullptr && count > 0)) {
      status = absl::InvalidArgumentError(
          absl::StrCat("row_status ", row_status == nullptr ? "is NULL" : "has too few places",
                       ": capacity is ", capacity, ", the layer has ", count, " rows"));
    } else {
      args::GiveRowStatus(part, row_status);
      status = absl::OkStatus();
    }
  });
  return status;
}

}  // namespace

extern "C" {

void engram_prefetcher_options_init(engram_prefetcher_options* options) { args::Init(options); }

engram_status engram_prefetcher_open(engram_table* table, const engram_prefetcher_options* options,
                                     engram_prefetcher** prefetcher) {
  return args::Open(prefetcher, [&] { return OpenPrefetcher(table, options); });
}

void engram_prefetcher_close(engram_prefetcher* prefetcher) { args::Close(prefetcher); }

engram_status engram_prefetcher_add_slot(engram_prefetcher* prefetcher,
                                         const engram_slot_options* options, uint32_t* slot) {
  return args::Call(prefetcher, [&] { return AddSlot(*prefetcher, options, slot); });
}

engram_status engram_prefetcher_submit(engram_prefetcher* prefetcher, const engram_step* step,
                                       engram_ticket* ticket) {
  return args::Call(prefetcher, [&] { return Submit(*prefetcher, step, ticket); });
}

engram_status engram_prefetcher_wait(engram_prefetcher* prefetcher, engram_ticket ticket,
                                     int32_t layer, uint64_t timeout_ns) {
  return args::Call(prefetcher,
                    [&] { return Wait(*prefetcher, Unpack(ticket), layer, timeout_ns); });
}

engram_status engram_prefetcher_poll(engram_prefetcher* prefetcher, engram_ticket ticket,
                                     uint32_t layer, engram_layer_state* state, int* late) {
  return args::Call(prefetcher, [&]() -> absl::Status {
    const LayerState now = prefetcher->steps->Poll(Unpack(ticket), layer);
    if (state != nullptr) *state = static_cast<engram_layer_state>(now);
    if (late != nullptr) *late = prefetcher->steps->OutcomeOf(Unpack(ticket), layer).late ? 1 : 0;
    return absl::OkStatus();
  });
}

engram_status engram_prefetcher_row_status(engram_prefetcher* prefetcher, engram_ticket ticket,
                                           uint32_t layer, uint8_t* row_status, size_t capacity,
                                           size_t* rows) {
  return args::Call(prefetcher, [&] {
    return RowStatus(*prefetcher, Unpack(ticket), layer, row_status, capacity, rows);
  });
}

engram_status engram_prefetcher_cancel(engram_prefetcher* prefetcher, engram_ticket ticket,
                                       int32_t layer) {
  return args::Call(prefetcher, [&]() -> absl::Status {
    if (layer < 0) {
      prefetcher->steps->CancelAll(Unpack(ticket));
    } else {
      prefetcher->steps->Cancel(Unpack(ticket), static_cast<std::uint32_t>(layer));
    }
    return absl::OkStatus();
  });
}

engram_status engram_prefetcher_release(engram_prefetcher* prefetcher, engram_ticket ticket) {
  return args::Call(prefetcher, [&] { return Release(*prefetcher, Unpack(ticket)); });
}

}  // extern "C"
