// What is here is what the CPU's stand-in (tests/gpu/stand_in.h) cannot share: the memory model of
// the GPU, lanes of a warp, grids.
#include "client/gpu/kernels.h"

#include <algorithm>

#include "client/gpu/pattern.h"

namespace engram::client::gpu {
namespace {

constexpr std::uint32_t kWarp = 32;
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kMaxBlocks = 1u << 20;  // kernels stride over what is left
// Blocks that post ids all look at the doorbell: few, so that they never fill the GPU.
constexpr std::uint32_t kMaxPostBlocks = 32;

// Words lie in host memory or in the GPU's own. System scope orders what this thread has written,
// and what it has seen of others through barriers and Add, before the word for the CPU and for the
// NIC; the fence in Store orders the writes of a whole block after its barrier.
struct DeviceModel {
  __device__ static Word Load(const Word* word) {
    Word value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static void Store(Word* word, Word value) {
    __threadfence_system();
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ static void Store(std::uint64_t* word, std::uint64_t value) {
    __threadfence_system();
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ static Word Add(Word* word, Word value) {
    Word before;
    __threadfence_system();
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(value)
                 : "memory");
    return before;
  }
  __device__ static std::uint64_t Now() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ static void Pause() { __nanosleep(100); }
};

// A warp that works on one row. All its lanes are there whenever it is used.
struct WarpLanes {
  __device__ std::uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ std::uint32_t lanes() const { return kWarp; }
  __device__ std::uint32_t Xor(std::uint32_t value) const {
    for (std::uint32_t other = kWarp / 2; other > 0; other /= 2)
      value ^= __shfl_xor_sync(~0u, value, other);
    return value;
  }
};

__device__ std::uint32_t CountOf(const TokenCount& tokens) {
  return tokens.on_device == nullptr ? tokens.count : *tokens.on_device;
}

__device__ std::size_t FirstOf() {
  return blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
}
__device__ std::size_t StepOf() { return gridDim.x * static_cast<std::size_t>(blockDim.x); }

std::uint32_t BlocksFor(std::size_t items, std::size_t per_block, std::uint32_t most) {
  return static_cast<std::uint32_t>(
      std::clamp<std::size_t>((items + per_block - 1) / per_block, 1, most));
}

__global__ void HashKernel(HashPlan plan, TokenBatch batch, HashOutput out) {
  const std::uint32_t live = CountOf(out.live);
  const std::size_t per_token = std::size_t{plan.layer_count} * out.columns;
  for (std::size_t i = FirstOf(); i < out.padded * per_token; i += StepOf()) {
    const auto token = static_cast<std::uint32_t>(i / per_token);
    const auto layer = static_cast<std::uint32_t>(i % per_token / out.columns);
    const auto index = static_cast<std::uint32_t>(i % out.columns);
    std::int64_t row = kSkippedRow;
    if (token < live)
      row = HashRow(plan, WindowOf(plan, batch, token), layer,
                    out.first_column + index * out.column_step);
    const std::size_t at = token * out.token_stride + layer * out.layer_stride + index;
    if (out.ids32 != nullptr) {
      out.ids32[at] = static_cast<std::int32_t>(row);
    } else {
      out.ids64[at] = row;
    }
  }
}

__global__ void PostKernel(RingView view, std::uint32_t slot, DeviceSlot* device, IdSource ids,
                           TokenCount tokens, std::uint32_t kind, std::uint64_t limit_ns) {
  __shared__ bool may;
  DeviceModel model;
  SlotWords& words = view.words(slot);
  const Word count = CountOf(tokens);
  if (threadIdx.x == 0) may = MayWriteIds(model, words, *device, limit_ns);
  __syncthreads();
  // The client refuses more tokens than fit.
  if (may && count <= view.shape.max_tokens) CopyIds(view, slot, ids, count, FirstOf(), StepOf());
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) EndOfIds(model, words, *device, may, gridDim.x, count, kind);
}

__global__ void WaitKernel(RingView view, std::uint32_t slot, DeviceSlot* device,
                           std::uint32_t layer, std::uint64_t limit_ns) {
  DeviceModel model;
  AwaitLayer(model, view.words(slot), *device, layer, limit_ns);
}

template <class Output>
__global__ void DeliverKernel(Landing from, Output to, Delivery delivery) {
  const WarpLanes lanes;
  std::uint32_t live = delivery.tokens;
  bool all_failed = false;
  if (delivery.device != nullptr) {
    live = delivery.device->tokens;
    all_failed = !HasRows(static_cast<LayerEnd>(delivery.device->verdict[delivery.layer]));
  }
  const std::size_t rows = std::size_t{delivery.tokens} * delivery.columns;
  for (std::size_t i = FirstOf() / kWarp; i < rows; i += StepOf() / kWarp) {
    const std::size_t token = i / delivery.columns;
    const auto to_row = static_cast<std::uint32_t>(token * delivery.token_rows +
                                                   i % delivery.columns * delivery.column_rows);
    if (token >= live) {
      to.Fill(to_row, false, lanes);
      continue;
    }
    const RowOutcome outcome =
        DeliverRow(from, static_cast<std::uint32_t>(i), all_failed, to, to_row, lanes);
    if (outcome == RowOutcome::kCorrupt && delivery.corrupt != nullptr && lanes.lane() == 0)
      atomicAdd(delivery.corrupt, 1);
  }
}

// Loads are volatile: none of them is made before the wait has ended.
__global__ void CheckKernel(const volatile std::uint64_t* memory, std::size_t words,
                            std::uint64_t seed, const Word* word, Word round,
                            std::uint64_t limit_ns, CheckResult* result) {
  __shared__ bool seen;
  DeviceModel model;
  if (threadIdx.x == 0) seen = AwaitReached(model, word, round, limit_ns);
  __syncthreads();
  if (!seen) {
    if (threadIdx.x == 0) atomicAdd(&result->blocks_timed_out, 1);
    return;
  }
  unsigned long long stale = 0;
  for (std::size_t i = FirstOf(); i < words; i += StepOf())
    stale += memory[i] != PatternWord(seed, i);
  if (stale != 0) atomicAdd(&result->stale, stale);
}

template <class Output>
cudaError_t Deliver(const Landing& from, const Output& to, const Delivery& delivery,
                    cudaStream_t stream) {
  const std::size_t rows = std::size_t{delivery.tokens} * delivery.columns;
  if (rows == 0) return cudaSuccess;
  DeliverKernel<<<BlocksFor(rows, kThreads / kWarp, kMaxBlocks), kThreads, 0, stream>>>(from, to,
                                                                                        delivery);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LoadKernels() {
  const void* const kernels[] = {reinterpret_cast<const void*>(HashKernel),
                                 reinterpret_cast<const void*>(PostKernel),
                                 reinterpret_cast<const void*>(WaitKernel),
                                 reinterpret_cast<const void*>(CheckKernel),
                                 reinterpret_cast<const void*>(DeliverKernel<Bf16Output>),
                                 reinterpret_cast<const void*>(DeliverKernel<PlanesOutput>)};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchHash(const HashPlan& plan, const TokenBatch& batch, const HashOutput& out,
                       cudaStream_t stream) {
  const std::size_t rows = std::size_t{out.padded} * plan.layer_count * out.columns;
  if (rows == 0) return cudaSuccess;
  HashKernel<<<BlocksFor(rows, kThreads, kMaxBlocks), kThreads, 0, stream>>>(plan, batch, out);
  return cudaGetLastError();
}

cudaError_t LaunchPost(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       const IdSource& ids, const TokenCount& tokens, std::uint32_t kind,
                       std::uint64_t limit_ns, cudaStream_t stream) {
  // Sized for the largest step: the count may be known on the GPU only.
  const std::size_t most = tokens.on_device != nullptr ? view.shape.max_tokens : tokens.count;
  const std::uint32_t blocks =
      BlocksFor(most * view.shape.layers * view.shape.columns, 4 * kThreads, kMaxPostBlocks);
  PostKernel<<<blocks, kThreads, 0, stream>>>(view, slot, device, ids, tokens, kind, limit_ns);
  return cudaGetLastError();
}

cudaError_t LaunchWait(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       std::uint32_t layer, std::uint64_t limit_ns, cudaStream_t stream) {
  WaitKernel<<<1, 1, 0, stream>>>(view, slot, device, layer, limit_ns);
  return cudaGetLastError();
}

cudaError_t LaunchDeliver(const Landing& from, const Bf16Output& to, const Delivery& delivery,
                          cudaStream_t stream) {
  return Deliver(from, to, delivery, stream);
}
cudaError_t LaunchDeliver(const Landing& from, const PlanesOutput& to, const Delivery& delivery,
                          cudaStream_t stream) {
  return Deliver(from, to, delivery, stream);
}

cudaError_t LaunchCheck(const std::uint64_t* memory, std::size_t words, std::uint64_t seed,
                        const Word* word, Word round, std::uint64_t limit_ns, CheckResult* result,
                        cudaStream_t stream) {
  CheckKernel<<<kMaxPostBlocks, kThreads, 0, stream>>>(memory, words, seed, word, round, limit_ns,
                                                       result);
  return cudaGetLastError();
}

}  // namespace engram::client::gpu
