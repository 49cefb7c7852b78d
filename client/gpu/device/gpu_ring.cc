#include "client/gpu/device/gpu_ring.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {

absl::StatusOr<std::unique_ptr<GpuRing>> GpuRing::Open(std::unique_ptr<StepReads> reads,
                                                       const Options& options) {
  const CurrentDevice current(options.device);
  if (!current.status().ok()) return current.status();
  std::unique_ptr<GpuRing> ring(new GpuRing(std::move(reads), options));
  if (absl::Status status = ring->Start(); !status.ok()) return status;
  return ring;
}

absl::Status GpuRing::Start() {
  const RingShape& shape = options_.shape;
  if (options_.format.row_bytes() > shape.row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", shape.row_bytes, " bytes hold no ",
                                                   options_.format.value_bytes,
                                                   " values and their scales"));
  }
  // Its numbers are checked before memory of that size is asked for.
  host_view_.shape = shape;
  if (auto checked = RingService::Check(shape, options_.service.layers.size()); !checked.ok())
    return checked;
  auto shared = PinnedMemory::Create(shape.shared_bytes());
  if (!shared.ok()) return shared.status();
  auto landing = PinnedMemory::Create(shape.landing_bytes());
  if (!landing.ok()) return landing.status();
  shared_ = *std::move(shared);
  landing_ = *std::move(landing);
  host_view_ = {shape, shared_.host(), landing_.host()};
  device_view_ = {shape, shared_.device(), landing_.device()};
  std::vector<DeviceSlot> slots(shape.slots);
  for (std::uint32_t i = 0; i < shape.slots; ++i)
    StartSlot(host_view_.words(i), slots[i], options_.first_sequence);
  auto copied = DeviceMemory::CopyOf(slots.data(), slots.size() * sizeof(DeviceSlot));
  if (!copied.ok()) return copied.status();
  slots_ = *std::move(copied);
  auto service = RingService::Open(host_view_, reads_.get(), options_.service);
  if (!service.ok()) return service.status();
  service_ = *std::move(service);
  auto poller = RingPoller::Start(service_.get(), options_.poller);
  if (!poller.ok()) return poller.status();
  poller_ = *std::move(poller);
  return absl::OkStatus();
}

GpuRing::~GpuRing() {
  poller_.reset();
  service_.reset();
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

absl::Status GpuRing::Deliver(std::uint32_t slot, std::uint32_t layer, const Output& out,
                              cudaStream_t stream) {
  const RingShape& shape = options_.shape;
  if (absl::Status status = CheckPlace(slot, layer); !status.ok()) return status;
  if (out.tokens > shape.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output for ", out.tokens, " tokens; the ring was opened for ", shape.max_tokens));
  }
  Landing from;
  from.rows = device_view_.rows(slot, layer);
  from.row_stride = shape.row_stride;
  from.failed = device_view_.failed(slot, layer);
  Delivery delivery;
  delivery.tokens = out.tokens;
  delivery.columns = shape.columns;
  delivery.token_rows = out.column_major ? 1 : shape.columns;
  delivery.column_rows = out.column_major ? out.tokens : 1;
  delivery.device = slots_.as<DeviceSlot>() + slot;
  delivery.layer = layer;
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
