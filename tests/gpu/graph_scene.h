// What tests/gpu/on_device.cc shares: checks that end the program, and a ring whose steps are
// captured graphs over a table that is a function. Thread-confined: call from the owner thread
// only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/gpu/device/gpu_ring.h"
#include "engram/random.h"
#include "tests/gpu/table_reads.h"

#define REQUIRE(condition)                                               \
  do {                                                                   \
    if (!(condition)) {                                                  \
      std::printf("FAILED %s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)
#define CUDA(call)                                                                                 \
  do {                                                                                             \
    const cudaError_t error = (call);                                                              \
    if (error != cudaSuccess) {                                                                    \
      std::printf("FAILED %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

namespace engram::client::gpu {

inline constexpr RowFormat kFormat{256};
inline constexpr std::uint32_t kLayers = 2, kColumns = 24, kMaxTokens = 64, kLayerRows = 1'000'000;
// Of the GPU's waits. A machine that has other things to do must not make them end.
inline constexpr std::uint64_t kLimitNs = 30'000'000'000;

inline double Microseconds(Instant since) {
  return static_cast<double>((SystemClock::Get().Now() - since).count()) / 1e3;
}

template <class T>
DeviceMemory ToDevice(const std::vector<T>& from) {
  return *DeviceMemory::CopyOf(from.data(), from.size() * sizeof(T));
}
template <class T>
std::vector<T> ToHost(const DeviceMemory& from, std::size_t count) {
  std::vector<T> out(count);
  CUDA(cudaMemcpy(out.data(), from.as<void>(), count * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

struct Scene {
  explicit Scene(Word first_sequence, std::uint64_t limit_ns = kLimitNs) {
    GpuRing::Options options;
    options.shape.slots = 2;
    options.shape.layers = kLayers;
    options.shape.columns = kColumns;
    options.shape.max_tokens = kMaxTokens;
    options.shape.row_bytes = options.shape.row_stride = kFormat.row_bytes();
    options.format = kFormat;
    options.service.layers = {{0, kLayerRows}, {kLayerRows, kLayerRows}};
    options.wait_limit_ns = limit_ns;
    options.first_sequence = first_sequence;
    const auto open_reads = [this](std::span<std::byte>) {
      auto own = std::make_unique<TableReads>(4, kFormat.row_bytes());
      reads = own.get();
      return own;
    };
    auto opened = GpuRing::Open(open_reads, options);
    if (!opened.ok()) std::printf("%s\n", std::string(opened.status().message()).c_str());
    REQUIRE(opened.ok());
    ring = *std::move(opened);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      Allocate(slot);
      graphs[slot] = Capture(slot, /*rings=*/true);
    }
  }
  ~Scene() {
    CUDA(cudaStreamSynchronize(stream));
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream);
  }

  void Allocate(std::uint32_t slot) {
    ids[slot] = *DeviceMemory::Create(kMaxTokens * kLayers * kColumns * 4);
    live[slot] = *DeviceMemory::Create(4);
    for (DeviceMemory& rows : out[slot])
      rows = *DeviceMemory::Create(kMaxTokens * kColumns * kFormat.value_bytes * 2);
  }
  // Post, then for each layer wait and deliver: everything of a step, as one graph. Or, where
  // nothing `rings`, only the delivering.
  cudaGraphExec_t Capture(std::uint32_t slot, bool rings) {
    const IdSource from{ids[slot].as<void>(), 0, 0};
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (rings) REQUIRE(ring->Post(slot, from, {0, live[slot].as<Word>()}, 0, stream).ok());
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      if (rings) REQUIRE(ring->Wait(slot, layer, stream).ok());
      GpuRing::Output to;
      to.bf16.rows = out[slot][layer].as<std::uint16_t>();
      to.tokens = kMaxTokens;
      REQUIRE(ring->Deliver(slot, layer, to, stream).ok());
    }
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    CUDA(cudaStreamEndCapture(stream, &captured));
    CUDA(cudaGraphInstantiate(&graph, captured, 0));
    cudaGraphDestroy(captured);
    return graph;
  }

  // Draws ids, copies them to the GPU and replays the slot's graph.
  void Launch(std::uint32_t slot) {
    tokens[slot] = static_cast<Word>(1 + random.Below(kMaxTokens));
    host_ids[slot].clear();
    for (std::uint32_t i = 0; i < tokens[slot] * kLayers * kColumns; ++i) {
      const bool skip = random.Below(20) == 0;
      host_ids[slot].push_back(skip ? -1 : static_cast<std::int32_t>(random.Below(kLayerRows)));
    }
    CUDA(cudaMemcpyAsync(ids[slot].as<void>(), host_ids[slot].data(), host_ids[slot].size() * 4,
                         cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemcpyAsync(live[slot].as<void>(), &tokens[slot], 4, cudaMemcpyHostToDevice, stream));
    CUDA(cudaGraphLaunch(graphs[slot], stream));
  }

  std::vector<std::uint16_t> Rows(std::uint32_t slot, std::uint32_t layer) {
    return ToHost<std::uint16_t>(out[slot][layer], kMaxTokens * kColumns * kFormat.value_bytes);
  }
  // Every element of the step, those of the padding too.
  void RequireRight(std::uint32_t slot) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto got = Rows(slot, layer);
      for (std::uint32_t i = 0; i < kMaxTokens * kColumns; ++i) {
        const std::uint32_t token = i / kColumns;
        const std::int32_t id =
            token < tokens[slot]
                ? host_ids[slot][(token * kLayers + layer) * kColumns + i % kColumns]
                : -1;
        for (std::uint32_t k = 0; k < kFormat.value_bytes; ++k)
          REQUIRE(got[i * kFormat.value_bytes + k] == Want(id, layer, k));
      }
    }
  }
  static std::uint16_t Want(std::int32_t id, std::uint32_t layer, std::uint32_t at) {
    if (id < 0) return 0;
    const std::uint64_t row = static_cast<std::uint64_t>(id) + layer * kLayerRows;
    return DequantiseBf16(static_cast<std::uint8_t>(TableByte(row, at)),
                          static_cast<std::uint8_t>(TableByte(row, 256 + at / 32)), {});
  }
  void RequireNaN(std::uint32_t slot, std::uint32_t layer) {
    const auto got = Rows(slot, layer);
    for (std::size_t i = 0; i < std::size_t{tokens[slot]} * kColumns * kFormat.value_bytes; ++i)
      REQUIRE(got[i] == kBf16Nan);
  }
  LayerEnd End(std::uint32_t slot, std::uint32_t layer, Word step) {
    return *ring->End(slot, layer, step);
  }

  SeededRandom random{17};
  TableReads* reads = nullptr;
  std::unique_ptr<GpuRing> ring;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graphs[2] = {};
  DeviceMemory ids[2], live[2], out[2][kLayers];
  std::vector<std::int32_t> host_ids[2];
  Word tokens[2] = {};
};

}  // namespace engram::client::gpu
