// A ring with a real GPU at its other end: its memory, its client side and the thread that serves
// it; and its kernels, queued on the engine's streams. The client side reads through any StepReads.
// Thread-safe as engram/engram_gpu.h says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gpu/device/device_memory.h"
#include "client/gpu/kernels.h"
#include "client/gpu/ring_poller.h"
#include "client/gpu/ring_service.h"

namespace engram::client::gpu {

class GpuRing {
 public:
  struct Options {
    int device = 0;
    RingShape shape;
    RowFormat format;
    RingService::Options service;
    RingPoller::Options poller;
    std::uint64_t wait_limit_ns = 2'000'000'000;
    Word first_sequence = 0;
  };
  struct Output {
    Bf16Output bf16;      // format is ignored
    PlanesOutput planes;  // used when bf16.rows is null
    std::uint32_t tokens = 0;
    bool column_major = false;
  };

  static absl::StatusOr<std::unique_ptr<GpuRing>> Open(std::unique_ptr<StepReads> reads,
                                                       const Options& options);
  // REQUIRES: no stream uses it any more.
  ~GpuRing();
  GpuRing(const GpuRing&) = delete;
  GpuRing& operator=(const GpuRing&) = delete;

  absl::Status Post(std::uint32_t slot, const IdSource& ids, const TokenCount& tokens,
                    std::uint32_t kind, cudaStream_t stream);
  absl::Status Wait(std::uint32_t slot, std::uint32_t layer, cudaStream_t stream);
  absl::Status Deliver(std::uint32_t slot, std::uint32_t layer, const Output& out,
                       cudaStream_t stream);
  // NotFound: the slot is at a later step.
  absl::StatusOr<LayerEnd> End(std::uint32_t slot, std::uint32_t layer, Word step) const;
  const RingShape& shape() const { return options_.shape; }
  // Of the landing buffers, for those who register them with fabrics.
  std::span<std::byte> landing() const { return {landing_.host(), landing_.bytes()}; }
  // Ends the client's side; the GPU's waits end by their limit from here on. Idempotent.
  void StopServing() { poller_->Stop(); }

 private:
  GpuRing(std::unique_ptr<StepReads> reads, const Options& options)
      : options_(options), reads_(std::move(reads)) {}
  absl::Status Start();
  absl::Status CheckPlace(std::uint32_t slot, std::uint32_t layer) const;

  Options options_;
  const std::unique_ptr<StepReads> reads_;
  PinnedMemory shared_, landing_;
  DeviceMemory slots_;
  RingView host_view_, device_view_;
  std::unique_ptr<RingService> service_;
  std::unique_ptr<RingPoller> poller_;
};

}  // namespace engram::client::gpu
