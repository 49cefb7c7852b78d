#include "client/prefetcher.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/part_slice.h"
#include "engram/check.h"

namespace engram::client {
namespace {

// Larger steps start layer by layer: a layer fills messages of its own then, and its rows need not
// wait until the rows of later layers were looked at.
constexpr std::uint32_t kWholeRows = 1024;

fabric::Lane LaneOf(StepKind kind) {
  return kind == StepKind::kPrefill ? fabric::Lane::kBulk : fabric::Lane::kUrgent;
}

}  // namespace

RowReader::Options Prefetcher::ReaderOptions() {
  RowReader::Options options;
  options.max_rows = 3'072;
  options.max_parts = kMaxLayers;
  options.slots = 16;
  options.hedge_rows = 256;
  options.queue_depth = 16'384;
  return options;
}

absl::StatusOr<std::unique_ptr<Prefetcher>> Prefetcher::Open(std::unique_ptr<RowReader> reader,
                                                             const Options& options) {
  const auto refuse = [](const char* what, std::uint64_t value, std::uint64_t most) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, "; allowed are 1 to ", most));
  };
  if (options.tickets == 0 || options.tickets > 1024)
    return refuse("tickets", options.tickets, 1024);
  const std::uint32_t layers = std::min(kMaxLayers, reader->options().max_parts);
  if (options.max_layers == 0 || options.max_layers > layers)
    return refuse("max_layers", options.max_layers, layers);
  if (options.max_step_rows == 0 || options.max_step_rows > (1u << 30))
    return refuse("max_step_rows", options.max_step_rows, 1u << 30);
  if (options.ngram_rows == 0 || options.ngram_rows > kMostUnitRows)
    return refuse("ngram_rows", options.ngram_rows, kMostUnitRows);
  const RowCache* cache = reader->options().cache.get();
  const std::uint32_t unit_rows = std::min(options.ngram_rows, cache ? cache->unit_rows() : 0);
  for (const HotNgram& ngram : options.pinned) {
    if (ngram.ids.empty() || ngram.ids.size() > unit_rows)
      return refuse("the number of rows of a pinned n-gram", ngram.ids.size(), unit_rows);
  }
  const std::uint32_t kept = cache == nullptr ? 1 : 2;
  const std::uint32_t slots = reader->options().slots - std::min(reader->options().slots, kept);
  if (options.prefill_slots == 0 || options.prefill_slots > slots)
    return refuse("prefill_slots", options.prefill_slots, slots);
  return std::unique_ptr<Prefetcher>(new Prefetcher(std::move(reader), options));
}

Prefetcher::Prefetcher(std::unique_ptr<RowReader> reader, const Options& options)
    : options_(options),
      works_(options.tickets),
      reader_(std::move(reader)),
      clock_(*reader_->options().clock),
      zero_row_(reader_->table().poison.size()),
      flights_(reader_->options().slots),
      step_slots_(reader_->options().slots - (reader_->options().cache == nullptr ? 0 : 1)) {
  OpenHints();
  for (Work& work : works_) {
    work.layers.resize(options_.max_layers);
    work.ids = std::make_unique_for_overwrite<std::uint64_t[]>(options_.max_step_rows);
    work.row_status = std::make_unique_for_overwrite<ReadStatus[]>(options_.max_step_rows);
    work.failure.node.name.reserve(255);
  }
}

// ---- tickets ----

const Prefetcher::Work* Prefetcher::Find(Ticket ticket) const {
  if (ticket.index >= works_.size()) return nullptr;
  const Work& work = works_[ticket.index];
  return work.active && work.generation == ticket.generation ? &work : nullptr;
}

Prefetcher::Work* Prefetcher::Find(Ticket ticket) {
  return const_cast<Work*>(static_cast<const Prefetcher*>(this)->Find(ticket));
}

LayerState Prefetcher::State(Ticket ticket, std::uint32_t layer) const {
  const Work* work = Find(ticket);
  if (work == nullptr || layer >= work->layer_count) return LayerState::kUnknown;
  return work->layers[layer].state;
}

bool Prefetcher::Done(Ticket ticket) const {
  const Work* work = Find(ticket);
  return work == nullptr || work->pending == 0;
}

bool Prefetcher::Late(Ticket ticket, std::uint32_t layer) const {
  const Work* work = Find(ticket);
  return work != nullptr && layer < work->layer_count && work->layers[layer].late;
}

std::uint32_t Prefetcher::layers(Ticket ticket) const {
  const Work* work = Find(ticket);
  return work == nullptr ? 0 : work->layer_count;
}

const ReadPart* Prefetcher::Rows(Ticket ticket, std::uint32_t layer) const {
  const Work* work = Find(ticket);
  return work == nullptr || layer >= work->layer_count ? nullptr : &work->layers[layer].part;
}

const ReadFailure& Prefetcher::Failure(Ticket ticket) const {
  const Work* work = Find(ticket);
  ENGRAM_CHECK(work != nullptr);
  return work->failure;
}

WorstRow Prefetcher::Worst(Ticket ticket, std::uint32_t index) const {
  const Work* work = Find(ticket);
  ENGRAM_CHECK(work != nullptr && index < work->layer_count);
  const Layer& layer = work->layers[index];
  // By what a caller should hear of first: the caller's mistake and lost data before lateness.
  const auto weight = [](ReadStatus status) {
    static constexpr std::array<int, 9> kWeight = {0, 3, 4, 1, 2, 6, 4, 3, 5};
    return kWeight[static_cast<std::size_t>(status)];
  };
  WorstRow worst;
  for (std::uint32_t at = 0; at < layer.rows; ++at) {
    const ReadStatus status = layer.part.row_status[at];
    if (weight(status) <= weight(worst.status)) continue;
    const ReadPart& part = layer.part;
    worst = {status, RowId(IdAt(part, at) + part.first_row), part.first_row, part.row_limit};
  }
  return worst;
}

// ---- submitting ----

SubmitStatus Prefetcher::Refuse(SubmitStatus why) {
  refusal_ = why;
  return why;
}

absl::Status Prefetcher::refusal() const {
  switch (refusal_) {
    case SubmitStatus::kStarted: return absl::OkStatus();
    case SubmitStatus::kBusy:
      return absl::ResourceExhaustedError(absl::StrCat(
          "all ", options_.tickets, " steps are in use: release one (in Python: close it)"));
    case SubmitStatus::kTooLarge:
      return absl::InvalidArgumentError(absl::StrCat(
          "the step is larger than ", options_.max_step_rows, " rows, ", options_.max_layers,
          " layers or ", reader_->options().max_rows, " columns: split it, or open with more"));
    case SubmitStatus::kNoAddressing:
      return absl::FailedPreconditionError("the table names no address function: submit row ids");
    case SubmitStatus::kBadTokens: return bad_tokens_;
    case SubmitStatus::kBadStep:
      return absl::InvalidArgumentError(
          "the step's layers, columns or needed_by times do not fit the table");
  }
  return absl::InternalError("unknown refusal");
}

std::uint32_t Prefetcher::FreeWork() const {
  std::uint32_t index = 0;
  while (index < works_.size() && works_[index].active) ++index;
  return index;
}

bool Prefetcher::Fits(const Step& step, std::uint64_t* rows) const {
  if (step.layers.size() > options_.max_layers) return false;
  *rows = 0;
  for (const StepLayer& layer : step.layers) {
    *rows += std::uint64_t{layer.rows.runs} * layer.rows.run_rows;
    if (UnitRows(layer.rows) > reader_->options().max_rows) return false;
  }
  return *rows <= options_.max_step_rows;
}

Ticket Prefetcher::Begin(std::uint32_t index, const Step& step) {
  Work& work = works_[index];
  work.active = true;
  if (++work.generation == 0) ++work.generation;
  work.kind = step.kind;
  work.deadline = step.deadline;
  work.destination = step.destination;
  work.layer_count = work.pending = static_cast<std::uint32_t>(step.layers.size());
  work.failure.status = ReadStatus::kOk;
  work.failure.node.name.clear();
  next_due_ = std::min(next_due_, work.deadline);
  std::uint32_t rows = 0;
  for (std::uint32_t i = 0; i < work.layer_count; ++i) {
    Layer& layer = work.layers[i];
    layer = Layer();
    layer.part = step.layers[i].rows;
    if (layer.part.run_rows % options_.ngram_rows == 0) layer.part.ngram_rows = options_.ngram_rows;
    layer.needed_by = step.layers[i].needed_by;
    layer.rows = layer.part.runs * layer.part.run_rows;
    layer.units = layer.rows == 0 ? 0 : Units(layer.part);
    ++pending_layers_;
    if (layer.units == 0) {
      SettleLayer(work, layer);
      continue;
    }
    ++unstarted_;
    if (layer.part.row_status == nullptr) layer.part.row_status = work.row_status.get() + rows;
    rows += layer.rows;
    next_due_ = std::min(next_due_, layer.needed_by);
  }
  return {index, work.generation};
}

SubmitStatus Prefetcher::Submit(const Step& step, Ticket* ticket) {
  std::uint64_t rows = 0;
  if (!Fits(step, &rows)) return Refuse(SubmitStatus::kTooLarge);
  const std::uint32_t index = FreeWork();
  if (index == works_.size()) return Refuse(SubmitStatus::kBusy);
  const bool alone = unstarted_ == 0;
  *ticket = Begin(index, step);
  const bool whole =
      alone && rows <= std::min(kWholeRows, reader_->options().max_rows) && StartWhole(index);
  if (!whole) StartMore();
  KeepIds(works_[index]);
  if (flying_ > 0) Gather(clock_.Now());
  return SubmitStatus::kStarted;
}

SubmitStatus Prefetcher::Submit(const TokenStep& step, Ticket* ticket) {
  const Addressing* addressing = options_.addressing;
  if (addressing == nullptr || options_.layers == 0) return Refuse(SubmitStatus::kNoAddressing);
  const std::size_t layers = options_.layers;
  const std::uint32_t all = addressing->columns();
  const auto per_layer = static_cast<std::uint32_t>(all / layers);
  const std::uint32_t columns = step.columns == 0 ? per_layer : step.columns;
  if (layers > options_.max_layers) return Refuse(SubmitStatus::kTooLarge);
  const std::uint64_t end = step.first_column + std::uint64_t{columns - 1} * step.column_step + 1;
  if (columns == 0 || columns > per_layer || step.column_step == 0 || end > per_layer ||
      (!step.needed_by.empty() && step.needed_by.size() != layers))
    return Refuse(SubmitStatus::kBadStep);
  const std::size_t tokens = step.tokens.tokens.size();
  if (tokens * all > options_.max_step_rows) return Refuse(SubmitStatus::kTooLarge);
  const std::uint32_t index = FreeWork();
  if (index == works_.size()) return Refuse(SubmitStatus::kBusy);
  static_assert(sizeof(RowId) == sizeof(std::uint64_t));
  auto* ids = reinterpret_cast<RowId*>(works_[index].ids.get());
  bad_tokens_ = addressing->Rows(step.tokens, {ids, tokens * all});
  if (!bad_tokens_.ok()) return Refuse(SubmitStatus::kBadTokens);
  for (std::size_t i = 0; i < layers; ++i) {
    StepLayer& layer = token_layers_[i];
    layer = StepLayer();
    if (!step.needed_by.empty()) layer.needed_by = step.needed_by[i];
    layer.rows.ids = ids + i * per_layer + step.first_column;
    layer.rows.runs = static_cast<std::uint32_t>(tokens);
    layer.rows.run_rows = columns;
    layer.rows.run_id_stride = all;
    layer.rows.id_stride = step.column_step;
    layer.rows.row_limit = reader_->table().layout.rows();
    layer.rows.out = step.out + i * step.layer_stride;
    layer.rows.row_stride = step.row_stride;
    layer.rows.run_stride = step.token_stride;
    if (step.split_bytes > 0) {
      layer.rows.split_bytes = step.split_bytes;
      layer.rows.rest = step.rest + i * step.layer_stride;
      layer.rows.rest_row_stride = step.rest_row_stride;
      layer.rows.rest_run_stride = step.rest_token_stride;
    }
    if (step.row_status != nullptr) layer.rows.row_status = step.row_status + i * tokens * columns;
  }
  return Submit(Step{step.kind, {token_layers_.data(), layers}, step.deadline, step.destination},
                ticket);
}

// A step's ids are the caller's until here: what was not started is copied, run after run. The ids
// of a token step are ours already.
void Prefetcher::KeepIds(Work& work) {
  std::uint64_t* to = work.ids.get();
  for (std::uint32_t i = 0; i < work.layer_count; ++i) {
    Layer& layer = work.layers[i];
    ReadPart& part = layer.part;
    const auto* from = static_cast<const std::byte*>(part.ids);
    const std::size_t bytes = IdBytes(part.id_kind);
    const auto* own = reinterpret_cast<const std::byte*>(work.ids.get());
    const bool ours = from >= own && from < own + options_.max_step_rows * sizeof *to;
    if (!ours) {
      auto* at = reinterpret_cast<std::byte*>(to);
      for (std::uint32_t run = 0; run < part.runs && layer.rows > 0; ++run) {
        const std::byte* ids = from + run * part.run_id_stride * bytes;
        const std::uint32_t pieces = part.id_stride == 1 ? 1 : part.run_rows;
        const std::size_t piece = part.run_rows / pieces * bytes;
        for (std::uint32_t i = 0; i < pieces; ++i, at += piece)
          std::memcpy(at, ids + i * part.id_stride * bytes, piece);
      }
      part.ids = to;
      part.run_id_stride = part.run_rows;
      part.id_stride = 1;
    }
    to += layer.rows;
  }
}

// ---- starting ----

bool Prefetcher::MayStart(StepKind kind) const {
  if (flying_ == step_slots_) return false;
  return kind != StepKind::kPrefill || prefill_flying_ < options_.prefill_slots;
}

// All layers in one request, the most urgent first: one message a node.
bool Prefetcher::StartWhole(std::uint32_t index) {
  Work& work = works_[index];
  if (!MayStart(work.kind)) return false;
  std::array<std::uint8_t, kMaxLayers> layers;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < work.layer_count; ++i) {
    if (work.layers[i].units == 0) continue;
    std::uint32_t at = count++;
    for (; at > 0 && work.layers[layers[at - 1]].needed_by > work.layers[i].needed_by; --at)
      layers[at] = layers[at - 1];
    layers[at] = static_cast<std::uint8_t>(i);
  }
  for (std::uint32_t i = 0; i < count; ++i) whole_parts_[i] = work.layers[layers[i]].part;
  ReadRequest request;
  request.parts = {whole_parts_.data(), count};
  request.deadline = work.deadline;
  request.lane = LaneOf(work.kind);
  request.destination = work.destination;
  if (count > 0) request.needed_by = work.layers[layers[0]].needed_by;
  const RowReader::Slot slot = reader_->Start(request);
  ENGRAM_CHECK(slot >= 0);
  for (std::uint32_t i = 0; i < work.layer_count; ++i) work.layers[i].next = work.layers[i].units;
  unstarted_ -= count;
  Fly(slot, index, {layers.data(), count});
  return true;
}

void Prefetcher::Fly(RowReader::Slot slot, std::uint32_t index,
                     std::span<const std::uint8_t> layers) {
  Flight& flight = flights_[slot];
  flight.active = true;
  flight.work = index;
  flight.parts = static_cast<std::uint32_t>(layers.size());
  flight.reported = 0;
  flight.slice_rows = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    flight.layer[i] = layers[i];
    ++works_[index].layers[layers[i]].flights;
  }
  ++flying_;
  if (works_[index].kind == StepKind::kPrefill) ++prefill_flying_;
}

// Starts slices by deadline until the reader's slots are used up.
void Prefetcher::StartMore() {
  while (unstarted_ > 0) {
    const Layer* best = nullptr;
    std::uint32_t best_work = 0, best_layer = 0;
    for (std::uint32_t index = 0; index < works_.size(); ++index) {
      const Work& work = works_[index];
      if (!work.active || work.pending == 0 || !MayStart(work.kind)) continue;
      const bool bulk = work.kind == StepKind::kPrefill;
      for (std::uint32_t i = 0; i < work.layer_count; ++i) {
        const Layer& layer = work.layers[i];
        if (layer.state != LayerState::kPending || layer.next == layer.units) continue;
        const bool best_bulk = best != nullptr && works_[best_work].kind == StepKind::kPrefill;
        if (best != nullptr && (bulk != best_bulk ? bulk : layer.needed_by >= best->needed_by))
          continue;
        best = &layer;
        best_work = index;
        best_layer = i;
      }
    }
    if (best == nullptr || !StartSlice(best_work, best_layer)) return;
  }
}

// False: no more of them now.
bool Prefetcher::StartSlice(std::uint32_t index, std::uint32_t number) {
  Work& work = works_[index];
  Layer& layer = work.layers[number];
  const std::uint32_t most = reader_->options().max_rows / UnitRows(layer.part);
  const std::uint32_t count = std::min(most, layer.units - layer.next);
  const ReadPart part = Slice(layer.part, layer.next, count);
  ReadRequest request;
  request.parts = {&part, 1};
  request.deadline = work.deadline;
  request.lane = LaneOf(work.kind);
  request.destination = work.destination;
  request.needed_by = layer.needed_by;
  const RowReader::Slot slot = reader_->Start(request);
  if (slot < 0) return false;
  layer.next += count;
  if (layer.next == layer.units) --unstarted_;
  const auto one = static_cast<std::uint8_t>(number);
  Fly(slot, index, {&one, 1});
  flights_[slot].slice_rows = count * UnitRows(layer.part);
  if (!reader_->Done(slot)) return true;
  // Read within the call, from mapped memory: the caller may use it before the next one is.
  GatherFlight(slot, clock_.Now());
  return false;
}

}  // namespace engram::client
