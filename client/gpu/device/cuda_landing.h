// A GPU that NICs may write to: what CUDA says of the device, the flush that it offers, and the
// kernel that the test of direct landing runs. Thread-confined: call from the owner thread only.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "client/gpu/device/device_memory.h"
#include "client/gpu/gpu_direct.h"
#include "client/gpu/kernels.h"

namespace engram::client::gpu {

class CudaLanding final : public LandingDevice {
 public:
  static absl::StatusOr<std::unique_ptr<CudaLanding>> Open(int device);
  ~CudaLanding() override;

  Facts facts() const override { return facts_; }
  fabric::MemoryKind kind() const override {
    return {fabric::MemoryKind::Place::kCuda, static_cast<std::uint32_t>(device_)};
  }
  // Blocks until what NICs wrote before is visible to the device.
  bool Flush() override;
  absl::StatusOr<std::span<std::byte>> TestMemory(std::size_t bytes) override;
  Word* round_word() override { return reinterpret_cast<Word*>(word_.host()); }
  absl::Status StartCheck(std::uint64_t seed, Word round) override;
  absl::StatusOr<std::uint64_t> FinishCheck() override;

 private:
  explicit CudaLanding(int device) : device_(device) {}
  absl::Status Start();

  const int device_;
  Facts facts_;
  PinnedMemory word_;
  DeviceMemory memory_, result_;
  std::size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace engram::client::gpu
