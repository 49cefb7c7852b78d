#include "client/gpu/device/abi_reads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {
namespace {

// Durations of the C ABI start now; 0 means another thing there.
std::uint64_t FromNow(Instant until, Instant now) {
  return static_cast<std::uint64_t>(std::max<Duration::rep>((until - now).count(), 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AbiReads>> AbiReads::Open(engram_table* table, std::uint32_t steps,
                                                         std::uint32_t max_step_rows,
                                                         std::span<std::byte> landing) {
  std::unique_ptr<AbiReads> out(new AbiReads(table));
  engram_prefetcher_options options;
  engram_prefetcher_options_init(&options);
  options.steps = steps;
  options.max_step_rows = max_step_rows;
  engram_status status = engram_prefetcher_open(table, &options, &out->prefetcher_);
  if (status == ENGRAM_OK) {
    status =
        engram_table_register_destination(table, landing.data(), landing.size(), &out->landing_);
  }
  if (status != ENGRAM_OK) {
    return absl::UnavailableError(absl::StrCat("the reads of a ring: ", engram_status_name(status),
                                               ": ", engram_last_error()));
  }
  out->tickets_.resize(steps);
  out->layers_.reserve(Prefetcher::kMaxLayers);
  return out;
}

AbiReads::~AbiReads() {
  engram_prefetcher_close(prefetcher_);
  if (landing_ != 0) engram_table_unregister_destination(table_, landing_);
}

StepReads::Started AbiReads::Submit(const Step& step, Ticket* ticket) {
  const auto free = std::find(tickets_.begin(), tickets_.end(), 0u);
  if (free == tickets_.end()) return Started::kBusy;
  const Instant now = SystemClock::Get().Now();
  layers_.clear();
  for (const StepLayer& layer : step.layers) {
    const ReadPart& part = layer.rows;
    engram_layer_rows rows{};
    rows.struct_size = sizeof rows;
    rows.ids = part.ids;
    rows.runs = part.runs;
    rows.id_stride = part.run_id_stride;
    rows.columns = part.run_rows;
    rows.id_type = part.id_kind == ReadPart::IdKind::kInt64 ? ENGRAM_ID_INT64 : ENGRAM_ID_INT32;
    rows.layer_index = static_cast<std::int32_t>(layers_.size());
    rows.out = part.out;
    rows.out_bytes = part.runs * part.run_stride;
    rows.row_stride = part.row_stride;
    rows.run_stride = part.run_stride;
    if (layer.needed_by != Instant::max()) rows.needed_in_ns = FromNow(layer.needed_by, now);
    layers_.push_back(rows);
  }
  engram_step out{};
  out.struct_size = sizeof out;
  out.kind = static_cast<std::uint32_t>(step.kind);
  out.layers = static_cast<std::uint32_t>(layers_.size());
  out.layer_rows = layers_.data();
  out.timeout_ns = FromNow(step.deadline, now);
  out.destination = landing_;
  out.fail_bad_ids = 1;  // a kernel cannot refuse a token: one request's must not cost the others
  switch (engram_prefetcher_submit(prefetcher_, &out, &*free)) {
    case ENGRAM_OK: break;
    case ENGRAM_RESOURCE_EXHAUSTED: *free = 0; return Started::kBusy;
    default: *free = 0; return Started::kRefused;
  }
  *ticket = {static_cast<std::uint32_t>(free - tickets_.begin()), 1};
  return Started::kStarted;
}

LayerState AbiReads::State(Ticket ticket, std::uint32_t layer) {
  engram_layer_state state = ENGRAM_LAYER_UNKNOWN;
  engram_prefetcher_poll(prefetcher_, tickets_[ticket.index], layer, &state, nullptr);
  switch (state) {
    case ENGRAM_LAYER_PENDING: return LayerState::kPending;
    case ENGRAM_LAYER_READY: return LayerState::kReady;
    case ENGRAM_LAYER_FAILED: return LayerState::kFailed;
    case ENGRAM_LAYER_CANCELLED: return LayerState::kCancelled;
    case ENGRAM_LAYER_UNKNOWN: break;
  }
  return LayerState::kUnknown;
}

void AbiReads::Release(Ticket ticket) {
  engram_prefetcher_release(prefetcher_, tickets_[ticket.index]);
  tickets_[ticket.index] = 0;
}

}  // namespace engram::client::gpu
