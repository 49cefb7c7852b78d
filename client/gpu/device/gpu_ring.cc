#include "client/gpu/device/gpu_ring.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {

absl::StatusOr<std::unique_ptr<GpuRing>> GpuRing::Open(const OpenReads& open_reads,
                                                       const Options& options) {
  const CurrentDevice current(options.device);
  if (!current.status().ok()) return current.status();
  std::unique_ptr<GpuRing> ring(new GpuRing(options));
  // Numbers are checked before memory of that size is asked for.
  absl::Status status = ring->Check();
  if (status.ok()) status = ring->Allocate();
  if (status.ok()) status = ring->Start(open_reads);
  if (!status.ok()) return status;
  return ring;
}

absl::Status GpuRing::Check() const {
  const RingShape& shape = options_.shape;
  if (options_.format.row_bytes() > shape.row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", shape.row_bytes, " bytes hold no ",
                                                   options_.format.value_bytes,
                                                   " values and their scales"));
  }
  if (options_.direct &&
      (!shape.failed_are_marked || shape.row_stride < shape.row_bytes + kSealBytes)) {
    return absl::InvalidArgumentError(
        "rows that land in the GPU's memory have their seals behind them, and marks of those that "
        "failed");
  }
  return RingService::Check(shape, options_.service.layers.size());
}

absl::Status GpuRing::Allocate() {
  const RingShape& shape = options_.shape;
  const auto pinned = [](std::size_t bytes, PinnedMemory* to) {
    auto made = PinnedMemory::Create(bytes);
    if (made.ok()) *to = *std::move(made);
    return made.status();
  };
  absl::Status status = FromCuda("loading the kernels", LoadKernels());
  if (status.ok()) status = pinned(shape.shared_bytes(), &shared_);
  if (status.ok()) status = pinned(sizeof(Word), &corrupt_);
  if (!status.ok()) return status;
  if (!options_.direct) {
    if (status = pinned(shape.landing_bytes(), &host_landing_); !status.ok()) return status;
    host_view_ = {shape, shared_.host(), host_landing_.host()};
    device_view_ = {shape, shared_.device(), host_landing_.device()};
    return absl::OkStatus();
  }
  auto landing = DeviceMemory::Create(shape.landing_bytes());
  if (!landing.ok()) return landing.status();
  device_landing_ = *std::move(landing);
  seals_ = std::make_unique<SealArrays>(options_.table, shape.row_bytes);
  auto weights =
      DeviceMemory::CopyOf(seals_->weights().data(), seals_->weights().size() * sizeof(Word));
  if (!weights.ok()) return weights.status();
  seal_weights_ = *std::move(weights);
  host_view_ = {shape, shared_.host(), device_landing_.as<std::byte>()};
  device_view_ = {shape, shared_.device(), device_landing_.as<std::byte>()};
  return absl::OkStatus();
}

absl::Status GpuRing::Start(const OpenReads& open_reads) {
  const RingShape& shape = options_.shape;
  std::vector<DeviceSlot> slots(shape.slots);
  for (std::uint32_t i = 0; i < shape.slots; ++i)
    StartSlot(host_view_.words(i), slots[i], options_.first_sequence);
  auto copied = DeviceMemory::CopyOf(slots.data(), slots.size() * sizeof(DeviceSlot));
  if (!copied.ok()) return copied.status();
  slots_ = *std::move(copied);
  auto reads = open_reads({host_view_.landing, shape.landing_bytes()});
  if (!reads.ok()) return reads.status();
  reads_ = *std::move(reads);
  auto service = RingService::Open(host_view_, reads_.get(), options_.service);
  if (!service.ok()) return service.status();
  service_ = *std::move(service);
  auto poller = RingPoller::Start(service_.get(), options_.poller);
  if (!poller.ok()) return poller.status();
  poller_ = *std::move(poller);
  return absl::OkStatus();
}

// The landing buffers go last, after the reads that know them.
GpuRing::~GpuRing() {
  poller_.reset();
  service_.reset();
  reads_.reset();
}

absl::Status GpuRing::CheckPlace(std::uint32_t slot, std::uint32_t layer) const {
  if (slot < options_.shape.slots && layer < options_.shape.layers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("slot ", slot, ", layer ", layer,
                                                 ": the ring has ", options_.shape.slots,
                                                 " slots and ", options_.shape.layers, " layers"));
}

absl::Status GpuRing::Post(std::uint32_t slot, const IdSource& ids, const TokenCount& tokens,
                           std::uint32_t kind, cudaStream_t stream) {
  if (absl::Status status = CheckPlace(slot, 0); !status.ok()) return status;
  if (tokens.on_device == nullptr && tokens.count > options_.shape.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("a step of ", tokens.count,
                                                   " tokens; the ring was opened for ",
                                                   options_.shape.max_tokens));
  }
  IdSource from = ids;
  if (from.layer_stride == 0) from.layer_stride = options_.shape.columns;
  if (from.token_stride == 0)
    from.token_stride = std::size_t{options_.shape.layers} * options_.shape.columns;
  return FromCuda("post kernel", LaunchPost(device_view_, slot, slots_.as<DeviceSlot>() + slot,
                                            from, tokens, kind, options_.wait_limit_ns, stream));
}

absl::Status GpuRing::Wait(std::uint32_t slot, std::uint32_t layer, cudaStream_t stream) {
  if (absl::Status status = CheckPlace(slot, layer); !status.ok()) return status;
  return FromCuda("wait kernel", LaunchWait(device_view_, slot, slots_.as<DeviceSlot>() + slot,
                                            layer, options_.wait_limit_ns, stream));
}

// Where the CPU has written the rows it has checked their seals, and written zeros and poison.
Landing GpuRing::LandingOf(std::uint32_t slot, std::uint32_t layer) const {
  const RingShape& shape = options_.shape;
  Landing from;
  from.rows = device_view_.rows(slot, layer);
  from.row_stride = shape.row_stride;
  if (!options_.direct) return from;
  from.failed = device_view_.failed(slot, layer);
  const std::byte* const ids =
      device_view_.ids(slot) + std::size_t{layer} * shape.columns * shape.id_bytes();
  if (shape.wide_ids) {
    from.ids64 = reinterpret_cast<const std::int64_t*>(ids);
  } else {
    from.ids32 = reinterpret_cast<const std::int32_t*>(ids);
  }
  from.id_columns = shape.columns;
  from.id_token_stride = std::size_t{shape.layers} * shape.columns;
  from.check_seals = true;
  from.seal = seals_->view();
  from.seal.weights = seal_weights_.as<std::uint32_t>();
  from.first_row = options_.service.layers[layer].first_row;
  return from;
}

absl::Status GpuRing::Deliver(std::uint32_t slot, std::uint32_t layer, const Output& out,
                              cudaStream_t stream) {
  const RingShape& shape = options_.shape;
  if (absl::Status status = CheckPlace(slot, layer); !status.ok()) return status;
  if (out.tokens > shape.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output for ", out.tokens, " tokens; the ring was opened for ", shape.max_tokens));
  }
  const Landing from = LandingOf(slot, layer);
  Delivery delivery;
  delivery.tokens = out.tokens;
  delivery.columns = shape.columns;
  delivery.token_rows = out.column_major ? 1 : shape.columns;
  delivery.column_rows = out.column_major ? out.tokens : 1;
  delivery.device = slots_.as<DeviceSlot>() + slot;
  delivery.layer = layer;
  delivery.corrupt = reinterpret_cast<Word*>(corrupt_.device());
  if (out.bf16.rows != nullptr) {
    Bf16Output to = out.bf16;
    to.format = options_.format;
    if (to.row_stride == 0) to.row_stride = options_.format.value_bytes;
    return FromCuda("deliver kernel", LaunchDeliver(from, to, delivery, stream));
  }
  PlanesOutput to = out.planes;
  to.format = options_.format;
  return FromCuda("deliver kernel", LaunchDeliver(from, to, delivery, stream));
}

absl::StatusOr<LayerEnd> GpuRing::End(std::uint32_t slot, std::uint32_t layer, Word step) const {
  if (absl::Status status = CheckPlace(slot, layer); !status.ok()) return status;
  HostModel model;
  LayerEnd end;
  if (EndOfLayer(model, host_view_.words(slot), layer, step, &end)) return end;
  return absl::NotFoundError(
      absl::StrCat("slot ", slot, " is past step ", step, ": ask before the next step is posted"));
}

}  // namespace engram::client::gpu
