// The kernels of the GPU path, as functions that queue them on a stream: loops around the row
// functions and the ring's protocol. None of them waits for the GPU, allocates or calls back, so
// all may be captured in a graph; what changes from step to step is read from device memory.
// Pointers in the views are those that the GPU sees. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "client/gpu/hash_row.h"
#include "client/gpu/ring.h"
#include "client/gpu/row_functions.h"

namespace engram::client::gpu {

// Loads every kernel into the current device. CUDA loads them at their first launch otherwise, and
// may wait for the device to be idle, which it is not while one of them waits for rows.
cudaError_t LoadKernels();

// So many, or as many as the device word says when the kernel runs.
struct TokenCount {
  std::uint32_t count = 0;
  const Word* on_device = nullptr;
};

// Row ids to [token][layer][column] with these strides, in elements; exactly one of the two.
// Tokens from `live` up to `padded` get kSkippedRow.
struct HashOutput {
  std::int32_t* ids32 = nullptr;
  std::int64_t* ids64 = nullptr;
  std::size_t token_stride = 0, layer_stride = 0;
  std::uint32_t first_column = 0, columns = 0, column_step = 1;  // of each layer
  TokenCount live;
  std::uint32_t padded = 0;  // at most batch.count
};
cudaError_t LaunchHash(const HashPlan& plan, const TokenBatch& batch, const HashOutput& out,
                       cudaStream_t stream);

// Posts the ids of a step and rings, or gives the step up after `limit_ns`.
cudaError_t LaunchPost(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       const IdSource& ids, const TokenCount& tokens, std::uint32_t kind,
                       std::uint64_t limit_ns, cudaStream_t stream);

// Waits until the layer of the slot's current step is settled; at most `limit_ns`.
cudaError_t LaunchWait(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       std::uint32_t layer, std::uint64_t limit_ns, cudaStream_t stream);

// Which rows are delivered, and where to: row of (token, column) goes to row
// token * token_rows + column * column_rows of the output.
struct Delivery {
  std::uint32_t tokens = 0;  // the output has so many; those that the step lacks become zeros
  std::uint32_t columns = 0;
  std::size_t token_rows = 0, column_rows = 1;
  const DeviceSlot* device = nullptr;  // null: all tokens are live and the rows are there
  std::uint32_t layer = 0;
  Word* corrupt = nullptr;  // null, or counts the rows with a wrong seal
};
cudaError_t LaunchDeliver(const Landing& from, const Bf16Output& to, const Delivery& delivery,
                          cudaStream_t stream);
cudaError_t LaunchDeliver(const Landing& from, const PlanesOutput& to, const Delivery& delivery,
                          cudaStream_t stream);

// What the kernel of LaunchCheck found, in GPU memory; zeros before.
struct CheckResult {
  unsigned long long stale = 0;
  std::uint32_t blocks_timed_out = 0;
};
// Waits until `word`, in host memory, reaches `round`, at most `limit_ns`; then counts the words of
// `memory` that are not PatternWord(seed, index). For client/gpu/gpu_direct.h.
cudaError_t LaunchCheck(const std::uint64_t* memory, std::size_t words, std::uint64_t seed,
                        const Word* word, Word round, std::uint64_t limit_ns, CheckResult* result,
                        cudaStream_t stream);

}  // namespace engram::client::gpu
