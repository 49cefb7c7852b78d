// The C ABI of prefetched steps, over SharedPrefetcher.
#include <array>

#include "client/abi/handles.h"
#include "client/shared_prefetcher.h"

using engram::client::LayerState;
using engram::client::SharedPrefetcher;
using engram::client::StepLayer;
using engram::client::Ticket;
namespace args = engram::client::abi;

struct engram_prefetcher {
  engram_table* table = nullptr;
  std::uint64_t generation = 0;
  std::unique_ptr<SharedPrefetcher> steps;
};

namespace {

using args::Guard;

absl::Status Check(const engram_prefetcher* prefetcher) {
  return args::CheckHandle("prefetcher", prefetcher,
                           prefetcher == nullptr ? 0 : prefetcher->generation);
}

engram_ticket Pack(Ticket ticket) { return std::uint64_t{ticket.generation} << 32 | ticket.index; }
Ticket Unpack(engram_ticket ticket) {
  return {static_cast<std::uint32_t>(ticket), static_cast<std::uint32_t>(ticket >> 32)};
}

absl::Status SubmitTokens(engram_prefetcher& prefetcher, const engram_step& step,
                          engram::client::StepKind kind, engram::Instant now, Ticket* ticket) {
  const args::TableShape& shape = prefetcher.table->shape;
  auto tokens = args::TakeTokens(shape, step.tokens, step.out, step.out_bytes, shape.row_bytes);
  if (!tokens.ok()) return tokens.status();
  const std::size_t layers = shape.layers.size();
  std::array<engram::Instant, engram::client::Prefetcher::kMaxLayers> needed_by;
  engram::client::TokenStep ours;
  ours.kind = kind;
  ours.tokens = tokens->span;
  ours.deadline = args::DeadlineOf(step.timeout_ns);
  if (step.needed_in_ns != nullptr && layers <= needed_by.size()) {
    for (std::size_t i = 0; i < layers; ++i) {
      const std::uint64_t in = std::min(step.needed_in_ns[i], args::kMaxTimeoutNs);
      needed_by[i] =
          in == 0 ? engram::Instant::max() : now + engram::Duration(static_cast<std::int64_t>(in));
    }
    ours.needed_by = {needed_by.data(), layers};
  }
  ours.out = static_cast<std::byte*>(step.out);
  ours.row_stride = shape.row_bytes;
  ours.token_stride = std::size_t{shape.columns} * shape.row_bytes;
  ours.layer_stride = layers == 0 ? 0 : ours.token_stride / layers;
  return prefetcher.steps->Submit(ours, ticket);
}

absl::Status SubmitRows(engram_prefetcher& prefetcher, const engram_step& step,
                        engram::client::StepKind kind, engram::Instant now, Ticket* ticket) {
  std::array<StepLayer, engram::client::Prefetcher::kMaxLayers> layers;
  if (step.layers > layers.size())
    return absl::InvalidArgumentError(
        absl::StrCat("step->layers is ", step.layers, "; the limit is ", layers.size()));
  for (std::uint32_t i = 0; i < step.layers; ++i) {
    auto layer = args::TakeLayer(prefetcher.table->shape, step.layer_rows, i, now);
    if (!layer.ok()) return layer.status();
    layers[i] = *layer;
  }
  return prefetcher.steps->Submit(
      engram::client::Step{kind, {layers.data(), step.layers}, args::DeadlineOf(step.timeout_ns)},
      ticket);
}

absl::Status Submit(engram_prefetcher* prefetcher, const engram_step* given,
                    engram_ticket* ticket) {
  if (absl::Status status = Check(prefetcher); !status.ok()) return status;
  if (ticket == nullptr) return absl::InvalidArgumentError("ticket is NULL");
  *ticket = 0;
  engram_step step{};
  if (absl::Status status = args::TakeStruct("step", given, false, &step); !status.ok())
    return status;
  auto kind = args::TakeKind(step.kind);
  if (!kind.ok()) return kind.status();
  if ((step.tokens == nullptr) == (step.layer_rows == nullptr))
    return absl::InvalidArgumentError(
        "a step has either tokens or layer_rows; set one of them and leave the other NULL");
  const engram::Instant now = engram::SystemClock::Get().Now();
  Ticket ours;
  absl::Status status = step.tokens != nullptr ? SubmitTokens(*prefetcher, step, *kind, now, &ours)
                                               : SubmitRows(*prefetcher, step, *kind, now, &ours);
  if (status.ok()) *ticket = Pack(ours);
  return status;
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
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no layer ", layer, " of that step: the step was released, or it has fewer layers"));
}

absl::Status Wait(engram_prefetcher* prefetcher, engram_ticket packed, std::int32_t layer,
                  std::uint64_t timeout_ns) {
  if (absl::Status status = Check(prefetcher); !status.ok()) return status;
  SharedPrefetcher& steps = *prefetcher->steps;
  const Ticket ticket = Unpack(packed);
  const engram::Instant until = args::DeadlineOf(timeout_ns);
  if (layer >= 0) {
    steps.Wait(ticket, static_cast<std::uint32_t>(layer), until);
    return ResultOf(*prefetcher, ticket, static_cast<std::uint32_t>(layer));
  }
  steps.WaitAll(ticket, until);
  const std::uint32_t layers = steps.layers(ticket);
  if (layers == 0) return ResultOf(*prefetcher, ticket, 0);
  for (std::uint32_t i = 0; i < layers; ++i) {
    if (absl::Status status = ResultOf(*prefetcher, ticket, i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

extern "C" {

void engram_prefetcher_options_init(engram_prefetcher_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

engram_status engram_prefetcher_open(engram_table* table, const engram_prefetcher_options* options,
                                     engram_prefetcher** prefetcher) {
  return Guard([&]() -> absl::Status {
    if (prefetcher == nullptr) return absl::InvalidArgumentError("prefetcher is NULL");
    *prefetcher = nullptr;
    if (absl::Status status = args::Check(table); !status.ok()) return status;
    auto taken = args::TakePrefetcherOptions(options);
    if (!taken.ok()) return taken.status();
    auto steps = table->table->OpenPrefetcher(*taken);
    if (!steps.ok()) return steps.status();
    auto handle = std::make_unique<engram_prefetcher>();
    handle->table = table;
    handle->generation = args::Generation();
    handle->steps = *std::move(steps);
    *prefetcher = handle.release();
    return absl::OkStatus();
  });
}

void engram_prefetcher_close(engram_prefetcher* prefetcher) {
  if (prefetcher == nullptr || !Check(prefetcher).ok()) return;
  Guard([&]() -> absl::Status {
    delete prefetcher;
    return absl::OkStatus();
  });
}

engram_status engram_prefetcher_submit(engram_prefetcher* prefetcher, const engram_step* step,
                                       engram_ticket* ticket) {
  return Guard([&] { return Submit(prefetcher, step, ticket); });
}

engram_status engram_prefetcher_wait(engram_prefetcher* prefetcher, engram_ticket ticket,
                                     int32_t layer, uint64_t timeout_ns) {
  return Guard([&] { return Wait(prefetcher, ticket, layer, timeout_ns); });
}

engram_status engram_prefetcher_poll(engram_prefetcher* prefetcher, engram_ticket ticket,
                                     uint32_t layer, engram_layer_state* state, int* late) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(prefetcher); !status.ok()) return status;
    const LayerState now = prefetcher->steps->Poll(Unpack(ticket), layer);
    if (state != nullptr) *state = static_cast<engram_layer_state>(now);
    if (late != nullptr) *late = prefetcher->steps->OutcomeOf(Unpack(ticket), layer).late ? 1 : 0;
    return absl::OkStatus();
  });
}

engram_status engram_prefetcher_cancel(engram_prefetcher* prefetcher, engram_ticket ticket,
                                       int32_t layer) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(prefetcher); !status.ok()) return status;
    if (layer < 0) {
      prefetcher->steps->CancelAll(Unpack(ticket));
    } else {
      prefetcher->steps->Cancel(Unpack(ticket), static_cast<std::uint32_t>(layer));
    }
    return absl::OkStatus();
  });
}

engram_status engram_prefetcher_release(engram_prefetcher* prefetcher, engram_ticket ticket) {
  return Guard([&]() -> absl::Status {
    if (absl::Status status = Check(prefetcher); !status.ok()) return status;
    prefetcher->steps->Release(Unpack(ticket));
    return absl::OkStatus();
  });
}

}  // extern "C"
