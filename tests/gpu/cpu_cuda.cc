// The part of CUDA's runtime that the GPU path uses, on the CPU, and its kernels as loops over the
// same row functions: a stream is a thread that runs one operation after the other, a captured
// graph a list of operations. With it tests/gpu/on_device.cc runs where there is no GPU, so that
// what surrounds the kernels (client/gpu/device/) is tested, and the program itself before it meets
// a GPU. It says nothing of a GPU. Thread-safe as far as that program needs it.
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/gpu/host_model.h"
#include "client/gpu/kernels.h"
#include "client/gpu/pattern.h"

namespace {

using Operation = std::function<void()>;
using Graph = std::vector<Operation>;

class Stream {
 public:
  Stream() : thread_([this] { Run(); }) {}
  ~Stream() {
    Synchronize();
    Push({});
    thread_.join();
  }
  void Push(Operation operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
    changed_.notify_all();
  }
  void Synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return operations_.empty(); });
  }
  Graph* capture = nullptr;

 private:
  void Run() {
    for (;;) {
      Operation operation;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !operations_.empty(); });
        operation = operations_.front();
      }
      const bool is_last = operation == nullptr;
      if (!is_last) operation();
      const std::lock_guard lock(mutex_);
      operations_.pop_front();
      changed_.notify_all();
      if (is_last) return;
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  std::thread thread_;
};

Stream* Of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }

// The null stream is the caller's thread.
cudaError_t Queue(cudaStream_t stream, Operation operation) {
  if (stream == nullptr) {
    operation();
  } else if (Of(stream)->capture != nullptr) {
    Of(stream)->capture->push_back(std::move(operation));
  } else {
    Of(stream)->Push(std::move(operation));
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "none: the CPU in its role");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrGPUDirectRDMASupported ? 0 : 1;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error of the CPU in the GPU's role"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return Queue(stream, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return Queue(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete Of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) Of(stream)->Synchronize();
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Of(stream)->capture = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(Of(stream)->capture, nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const Operation& operation : *reinterpret_cast<Graph*>(graph)) Queue(stream, operation);
  return cudaSuccess;
}

}  // extern "C"

namespace engram::client::gpu {
namespace {

std::uint32_t CountOf(const TokenCount& tokens) {
  return tokens.on_device == nullptr ? tokens.count : *tokens.on_device;
}

template <class Output>
void DeliverAll(const Landing& from, const Output& to, const Delivery& delivery) {
  std::uint32_t live = delivery.tokens;
  bool all_failed = false;
  if (delivery.device != nullptr) {
    live = delivery.device->tokens;
    all_failed = !HasRows(static_cast<LayerEnd>(delivery.device->verdict[delivery.layer]));
  }
  for (std::uint32_t i = 0; i < delivery.tokens * delivery.columns; ++i) {
    const std::uint32_t token = i / delivery.columns;
    const auto to_row = static_cast<std::uint32_t>(token * delivery.token_rows +
                                                   i % delivery.columns * delivery.column_rows);
    if (token >= live) {
      to.Fill(to_row, false, OneLane());
    } else if (DeliverRow(from, i, all_failed, to, to_row, OneLane()) == RowOutcome::kCorrupt &&
               delivery.corrupt != nullptr) {
      HostModel::Add(delivery.corrupt, 1);
    }
  }
}

}  // namespace

cudaError_t LoadKernels() { return cudaSuccess; }

cudaError_t LaunchHash(const HashPlan& plan, const TokenBatch& batch, const HashOutput& out,
                       cudaStream_t stream) {
  return Queue(stream, [=] {
    for (std::uint32_t i = 0; i < out.padded * plan.layer_count * out.columns; ++i) {
      const std::uint32_t token = i / out.columns / plan.layer_count;
      const std::uint32_t layer = i / out.columns % plan.layer_count, index = i % out.columns;
      std::int64_t row = kSkippedRow;
      if (token < CountOf(out.live))
        row = HashRow(plan, WindowOf(plan, batch, token), layer,
                      out.first_column + index * out.column_step);
      const std::size_t at = token * out.token_stride + layer * out.layer_stride + index;
      if (out.ids32 != nullptr) out.ids32[at] = static_cast<std::int32_t>(row);
      if (out.ids64 != nullptr) out.ids64[at] = row;
    }
  });
}

cudaError_t LaunchPost(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       const IdSource& ids, const TokenCount& tokens, std::uint32_t kind,
                       std::uint64_t limit_ns, cudaStream_t stream) {
  return Queue(stream, [=] {
    HostModel model;
    const Word count = CountOf(tokens);
    const bool may = MayWriteIds(model, view.words(slot), *device, limit_ns);
    if (may && count <= view.shape.max_tokens) CopyIds(view, slot, ids, count, 0, 1);
    EndOfIds(model, view.words(slot), *device, may, 1, count, kind);
  });
}

cudaError_t LaunchWait(const RingView& view, std::uint32_t slot, DeviceSlot* device,
                       std::uint32_t layer, std::uint64_t limit_ns, cudaStream_t stream) {
  return Queue(stream, [=] {
    HostModel model;
    AwaitLayer(model, view.words(slot), *device, layer, limit_ns);
  });
}

cudaError_t LaunchDeliver(const Landing& from, const Bf16Output& to, const Delivery& delivery,
                          cudaStream_t stream) {
  return Queue(stream, [=] { DeliverAll(from, to, delivery); });
}
cudaError_t LaunchDeliver(const Landing& from, const PlanesOutput& to, const Delivery& delivery,
                          cudaStream_t stream) {
  return Queue(stream, [=] { DeliverAll(from, to, delivery); });
}

cudaError_t LaunchCheck(const std::uint64_t* memory, std::size_t words, std::uint64_t seed,
                        const Word* word, Word round, std::uint64_t limit_ns, CheckResult* result,
                        cudaStream_t stream) {
  return Queue(stream, [=] {
    HostModel model;
    result->blocks_timed_out = AwaitReached(model, word, round, limit_ns) ? 0 : 1;
    for (std::size_t i = 0; i < words; ++i) result->stale += memory[i] != PatternWord(seed, i);
  });
}

}  // namespace engram::client::gpu

// No arithmetic of a GPU is to be had here: NaN stays NaN by decree.
cudaError_t LaunchQuantise(const void*, std::uint32_t count, float* sums, cudaStream_t stream) {
  return Queue(stream, [=] {
    for (std::uint32_t i = 0; i < count / 8; ++i) sums[i] = std::numeric_limits<float>::quiet_NaN();
  });
}
