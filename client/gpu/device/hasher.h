// The hash kernel with its arrays in GPU memory, from plain numbers: an engine that has the model's
// layout needs no pool for it. Immutable after Open: Thread-safe.
#pragma once

#include <cuda_runtime_api.h>
#include <engram/engram_gpu.h>

#include <memory>

#include "absl/status/statusor.h"
#include "client/gpu/device/device_memory.h"
#include "client/gpu/kernels.h"
#include "client/gpu/plans.h"

namespace engram::client::gpu {

class Hasher {
 public:
  // InvalidArgument: what Addressing::Make says of such a table.
  static absl::StatusOr<std::unique_ptr<Hasher>> Open(const engram_gpu_hasher_options& options);
  absl::Status Hash(const TokenBatch& batch, HashOutput out, cudaStream_t stream) const;
  // What the same numbers make on the CPU.
  static absl::StatusOr<HashArrays> Arrays(const engram_gpu_hasher_options& options);

 private:
  Hasher() = default;
  DeviceMemory map_, layers_, columns_;
  HashPlan plan_;                // pointers are the GPU's
  std::uint64_t most_rows_ = 0;  // of a layer
};

}  // namespace engram::client::gpu
