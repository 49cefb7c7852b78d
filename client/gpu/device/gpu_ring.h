// A ring with a real GPU at its other end: its memory, its client side and the thread that serves
// it; and its kernels, queued on the engine's streams. The client side reads through any StepReads;
// rows land in pinned host memory, or, where a DirectLicence was given, in the GPU's own.
// Thread-safe as engram/engram_gpu.h says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gpu/device/device_memory.h"
#include "client/gpu/kernels.h"
#include "client/gpu/plans.h"
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
    // Rows land in the GPU's memory, each followed by its seal, which the kernels check. The reads
    // are DirectReads, shape.row_stride is that of stored rows and failed_are_marked.
    bool direct = false;
    TableUid table;  // direct: what the seals are of
  };
  // Makes the reads for these landing buffers (the GPU's, where direct), which outlive them.
  using OpenReads =
      std::function<absl::StatusOr<std::unique_ptr<StepReads>>(std::span<std::byte> landing)>;
  struct Output {
    Bf16Output bf16;      // format is ignored
    PlanesOutput planes;  // used when bf16.rows is null
    std::uint32_t tokens = 0;
    bool column_major = false;
  };

  static absl::StatusOr<std::unique_ptr<GpuRing>> Open(const OpenReads& open_reads,
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
  // Rows whose seals a kernel found wrong; only where direct. Asks the GPU nothing.
  Word corrupt_rows() const { return HostModel::Load(reinterpret_cast<Word*>(corrupt_.host())); }
  // Ends the client's side; the GPU's waits end by their limit from here on. Idempotent.
  void StopServing() { poller_->Stop(); }

 private:
  explicit GpuRing(const Options& options) : options_(options) {}
  absl::Status Check() const;
  absl::Status Allocate();
  absl::Status Start(const OpenReads& open_reads);
  Landing LandingOf(std::uint32_t slot, std::uint32_t layer) const;
  absl::Status CheckPlace(std::uint32_t slot, std::uint32_t layer) const;

  const Options options_;
  PinnedMemory shared_, host_landing_, corrupt_;
  DeviceMemory slots_, device_landing_, seal_weights_;
  std::unique_ptr<SealArrays> seals_;
  RingView host_view_, device_view_;
  std::unique_ptr<StepReads> reads_;
  std::unique_ptr<RingService> service_;
  std::unique_ptr<RingPoller> poller_;
};

}  // namespace engram::client::gpu
