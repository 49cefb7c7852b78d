// What only a GPU can tell (tests/gpu/run.sh): that the kernels give the bits that the CPU gives,
// and that posting, waiting and delivering work inside a captured graph that is replayed. Exits
// with 77 where there is no GPU. Every check prints a line; the first that fails ends the program,
// so run.sh runs each by its name.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/gpu/device/gpu_ring.h"
#include "client/gpu/device/hasher.h"
#include "client/gpu/plans.h"
#include "engram/poison.h"
#include "engram/random.h"
#include "engram/sealed_row.h"
#include "tests/gpu/table_reads.h"

cudaError_t LaunchQuantise(const void* bf16, std::uint32_t count, float* sums, cudaStream_t stream);

namespace engram::client::gpu {
namespace {

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

constexpr RowFormat kFormat{256};
constexpr std::uint32_t kLayers = 2, kColumns = 24, kMaxTokens = 64, kLayerRows = 1'000'000;
constexpr std::uint64_t kLimitNs = 500'000'000;

double Microseconds(Instant since) {
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

Delivery AllRows(std::uint32_t rows) {
  Delivery delivery;
  delivery.tokens = rows;
  delivery.columns = 1;
  delivery.token_rows = 1;
  return delivery;
}

// ---- bits ----

void DequantiseEqualsTheCpu() {
  const std::size_t stride = 264;
  std::vector<std::uint8_t> rows(256 * stride);
  for (std::size_t scale = 0; scale < 256; ++scale) {
    for (std::size_t value = 0; value < 256; ++value)
      rows[scale * stride + value] = static_cast<std::uint8_t>(value);
    std::memset(&rows[scale * stride + 256], static_cast<int>(scale), 8);
  }
  const DeviceMemory in = ToDevice(rows), out = *DeviceMemory::Create(256 * 256 * 2);
  for (int rule = 0; rule < 4; ++rule) {
    Landing from;
    from.rows = in.as<std::byte>();
    from.row_stride = stride;
    Bf16Output to{out.as<std::uint16_t>(), 256, kFormat, {(rule & 1) != 0, (rule & 2) != 0}};
    CUDA(LaunchDeliver(from, to, AllRows(256), nullptr));
    const auto bits = ToHost<std::uint16_t>(out, 256 * 256);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      REQUIRE(bits[i] == DequantiseBf16(static_cast<std::uint8_t>(i % 256),
                                        static_cast<std::uint8_t>(i / 256), to.rule));
    }
  }
  std::puts("ok dequantise: 65,536 pairs of value and scale, 4 rules, bit for bit");
}

void SealsAndPlanesEqualTheCpu() {
  constexpr std::uint32_t kRows = 1000;
  const std::size_t stride = 272;
  const TableUid uid{{7, 7}};
  const SealArrays seals(uid, kFormat.row_bytes());
  SeededRandom random(3);
  std::vector<std::byte> rows(kRows * stride);
  std::vector<std::int64_t> ids;
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random.Next());
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < kRows; ++i) {
    ids.push_back(static_cast<std::int64_t>(random.Below(400'000'000)));
    std::byte* const row = &rows[i * stride];
    const std::uint64_t seal = RowSealer(uid, kFormat.row_bytes())
                                   .Seal(RowId(static_cast<std::uint64_t>(ids[i]) + 5), row);
    std::memcpy(row + kFormat.row_bytes(), &seal, sizeof seal);
    if (i % 10 != 0) continue;
    row[random.Below(stride)] ^= std::byte{1};
    ++wrong;
  }
  const DeviceMemory in = ToDevice(rows), id = ToDevice(ids), weights = ToDevice(seals.weights());
  const DeviceMemory values = *DeviceMemory::Create(kRows * 256);
  const DeviceMemory scales = *DeviceMemory::Create(kRows * 8), corrupt = *DeviceMemory::Create(4);
  Landing from;
  from.rows = in.as<std::byte>();
  from.row_stride = stride;
  from.ids64 = id.as<std::int64_t>();
  from.first_row = 5;
  from.check_seals = true;
  from.seal = seals.view();
  from.seal.weights = weights.as<std::uint32_t>();
  Delivery delivery = AllRows(kRows);
  delivery.corrupt = corrupt.as<Word>();
  CUDA(LaunchDeliver(from, PlanesOutput{values.as<std::byte>(), scales.as<std::byte>(), kFormat},
                     delivery, nullptr));
  REQUIRE(ToHost<Word>(corrupt, 1)[0] == wrong);
  const auto v = ToHost<std::byte>(values, kRows * 256), s = ToHost<std::byte>(scales, kRows * 8);
  for (std::uint32_t i = 0; i < kRows; ++i) {
    for (std::uint32_t k = 0; k < 256; ++k)
      REQUIRE(v[i * 256 + k] == (i % 10 == 0 ? std::byte{kE4M3Nan} : rows[i * stride + k]));
    for (std::uint32_t k = 0; k < 8; ++k)
      REQUIRE(s[i * 8 + k] == (i % 10 == 0 ? std::byte{kUe8m0Nan} : rows[i * stride + 256 + k]));
  }
  std::printf("ok seals and planes: %u rows, %u with one flipped bit, all found\n", kRows, wrong);
}

void HashEqualsTheCpu() {
  EngramGeometry geometry;
  geometry.compressed_vocab = geometry.raw_vocab;
  const TableSpec spec = *MakeEngramSpec(geometry);
  engram_gpu_hasher_options options{};
  options.layers = 2;
  options.max_order = 4;
  options.heads = 8;
  options.raw_vocab = options.compressed_vocab = geometry.raw_vocab;
  options.pad_token = geometry.pad_token;
  std::vector<std::uint64_t> heights;
  for (const Column& column : spec.columns) heights.push_back(column.rows);
  std::vector<std::int64_t> multipliers;
  for (const auto& of_layer : spec.addressing.multipliers)
    multipliers.insert(multipliers.end(), of_layer.begin(), of_layer.end());
  options.column_rows = heights.data();
  options.multipliers = multipliers.data();
  options.dead_token = 129'264;
  const auto arrays = *Hasher::Arrays(options);
  const auto hasher = *Hasher::Open(options);
  constexpr std::uint32_t kTokens = 4096;
  SeededRandom random(9);
  std::vector<std::int64_t> tokens(kTokens), before;
  std::vector<std::uint32_t> sequence, first;
  for (std::uint32_t i = 0; i < kTokens; ++i) {
    tokens[i] = random.Below(50) == 0 ? 129'264 : static_cast<std::int64_t>(random.Below(129'280));
    if (i == 0 || random.Below(40) == 0) {
      first.push_back(i);
      for (int k = 0; k < 3; ++k) before.push_back(static_cast<std::int64_t>(random.Below(99)) - 9);
    }
    sequence.push_back(static_cast<std::uint32_t>(first.size() - 1));
  }
  const DeviceMemory t = ToDevice(tokens), b = ToDevice(before), s = ToDevice(sequence),
                     f = ToDevice(first);
  const DeviceMemory ids = *DeviceMemory::Create(kTokens * 48 * 4);
  TokenBatch batch;
  batch.count = kTokens;
  batch.tokens = t.as<std::int64_t>();
  batch.before = b.as<std::int64_t>();
  batch.sequence = s.as<std::uint32_t>();
  batch.first = f.as<std::uint32_t>();
  HashOutput out;
  out.ids32 = ids.as<std::int32_t>();
  out.columns = 24;
  out.live.count = kTokens - 7;
  out.padded = kTokens;
  REQUIRE(hasher->Hash(batch, out, nullptr).ok());
  const auto got = ToHost<std::int32_t>(ids, kTokens * 48);
  HashPlan plan = arrays.view();
  plan.dead_token = options.dead_token;
  batch.tokens = tokens.data();
  batch.before = before.data();
  batch.sequence = sequence.data();
  batch.first = first.data();
  for (std::uint32_t token = 0; token < kTokens; ++token) {
    const TokenWindow window = WindowOf(plan, batch, token);
    for (std::uint32_t i = 0; i < 48; ++i) {
      const std::int64_t want =
          token < out.live.count ? HashRow(plan, window, i / 24, i % 24) : kSkippedRow;
      REQUIRE(got[token * 48 + i] == want);
    }
  }
  std::printf("ok hash: %u tokens of %zu sequences, 48 ids each\n", kTokens, first.size());
}

// ---- the ring in a graph ----

struct Scene {
  explicit Scene(Word first_sequence) {
    GpuRing::Options options;
    options.shape.slots = 2;
    options.shape.layers = kLayers;
    options.shape.columns = kColumns;
    options.shape.max_tokens = kMaxTokens;
    options.shape.row_bytes = options.shape.row_stride = kFormat.row_bytes();
    options.format = kFormat;
    options.service.layers = {{0, kLayerRows}, {kLayerRows, kLayerRows}};
    options.wait_limit_ns = kLimitNs;
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
    for (std::uint32_t slot = 0; slot < 2; ++slot) Capture(slot);
  }
  ~Scene() {
    CUDA(cudaStreamSynchronize(stream));
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream);
  }

  // Post, then for each layer wait and deliver: everything of a step, as one graph.
  void Capture(std::uint32_t slot) {
    constexpr std::size_t kIds = kMaxTokens * kLayers * kColumns;
    ids[slot] = *DeviceMemory::Create(kIds * 4);
    live[slot] = *DeviceMemory::Create(4);
    for (DeviceMemory& rows : out[slot])
      rows = *DeviceMemory::Create(kMaxTokens * kColumns * kFormat.value_bytes * 2);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    REQUIRE(
        ring->Post(slot, {ids[slot].as<void>(), 0, 0}, {0, live[slot].as<Word>()}, 0, stream).ok());
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      REQUIRE(ring->Wait(slot, layer, stream).ok());
      GpuRing::Output to;
      to.bf16.rows = out[slot][layer].as<std::uint16_t>();
      to.tokens = kMaxTokens;
      REQUIRE(ring->Deliver(slot, layer, to, stream).ok());
    }
    cudaGraph_t graph;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&graphs[slot], graph, 0));
    cudaGraphDestroy(graph);
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

void GraphsReplayAcrossTheWrapAround(std::uint32_t steps) {
  const Word first = 0u - steps / 2;
  Scene scene(first);

  double worst = 0, sum = 0;
  for (std::uint32_t step = 0; step < steps; ++step) {
    // Both slots are under way before either is looked at.
    const Instant start = SystemClock::Get().Now();
    for (std::uint32_t slot = 0; slot < 2; ++slot) scene.Launch(slot);
    CUDA(cudaStreamSynchronize(scene.stream));
    const double us = Microseconds(start);
    worst = std::max(worst, us);
    sum += us;
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      scene.RequireRight(slot);
      for (std::uint32_t layer = 0; layer < kLayers; ++layer)
        REQUIRE(scene.End(slot, layer, first + step + 1) == LayerEnd::kReady);
    }
  }
  std::printf(
      "ok graphs: %u replays of each of two slots, every element right; two steps take "
      "%.1f us on average, %.1f us at most, with copies and reads\n",
      steps, sum / steps, worst);
}

void BothLayersArePostedBeforeEitherIsWaitedFor() {
  Scene scene(0);
  scene.reads->open = 0;
  scene.Launch(0);
  const Instant give_up = SystemClock::Get().Now() + std::chrono::nanoseconds(kLimitNs / 2);
  while (scene.reads->submitted == 0 && SystemClock::Get().Now() < give_up)
    std::this_thread::yield();
  REQUIRE(scene.reads->submitted == 1);
  // The GPU waits for layer 0. Layer 1 is read first: it was posted, too.
  scene.reads->open = 2;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(scene.End(0, 0, 1) == LayerEnd::kPending);
  scene.reads->open = 3;
  CUDA(cudaStreamSynchronize(scene.stream));
  REQUIRE(scene.End(0, 0, 1) == LayerEnd::kReady && scene.End(0, 1, 1) == LayerEnd::kReady);
  scene.RequireRight(0);
  std::puts("ok both layers were with the client before the GPU's first wait ended");
}

void TimeOutsAreBoundedAndSaidAndTheSlotWorksAgain() {
  Scene scene(5);
  scene.reads->open = 1;  // layer 1 never comes
  const Instant start = SystemClock::Get().Now();
  scene.Launch(0);
  CUDA(cudaStreamSynchronize(scene.stream));
  const double late_us = Microseconds(start);
  REQUIRE(scene.End(0, 0, 6) == LayerEnd::kReady);
  REQUIRE(scene.End(0, 1, 6) == LayerEnd::kTimedOut);
  scene.RequireNaN(0, 1);
  scene.reads->open = 3;
  scene.Launch(0);  // rung again while the older step is being read
  CUDA(cudaStreamSynchronize(scene.stream));
  REQUIRE(scene.End(0, 0, 7) == LayerEnd::kReady && scene.End(0, 1, 7) == LayerEnd::kReady);
  scene.RequireRight(0);
  // A client that is gone: the first step is rung and times out, the next finds the ring full.
  scene.ring->StopServing();
  scene.Launch(0);
  CUDA(cudaStreamSynchronize(scene.stream));
  REQUIRE(scene.End(0, 0, 8) == LayerEnd::kTimedOut);
  scene.Launch(0);
  CUDA(cudaStreamSynchronize(scene.stream));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    REQUIRE(scene.End(0, layer, 9) == LayerEnd::kNotRung);
    scene.RequireNaN(0, layer);
  }
  std::printf(
      "ok time-outs: a wait of %.0f ms ended after %.0f ms; the slot worked again; without "
      "a client every step ends\n",
      kLimitNs / 1e6, late_us / 1e3);
}

void NaNSurvives() {
  EngramGeometry geometry;
  const std::vector<std::byte> poison = PoisonRow(*MakeEngramSpec(geometry));
  const DeviceMemory in = ToDevice(poison), out = *DeviceMemory::Create(256 * 2);
  const DeviceMemory sums = *DeviceMemory::Create(32 * 4);
  Landing from;
  from.rows = in.as<std::byte>();
  from.row_stride = poison.size();
  CUDA(LaunchDeliver(from, Bf16Output{out.as<std::uint16_t>(), 256, kFormat, {}}, AllRows(1),
                     nullptr));
  CUDA(LaunchQuantise(out.as<void>(), 256, sums.as<float>(), nullptr));
  for (const std::uint16_t bits : ToHost<std::uint16_t>(out, 256)) REQUIRE(bits == kBf16Nan);
  for (const float sum : ToHost<float>(sums, 32)) REQUIRE(sum != sum);
  std::puts("ok a poisoned row is NaN, and still is after quantising to E4M3 and a dot product");
}

// quick: a few replays instead of many, which take long under a sanitizer.
struct Check {
  const char* name;
  void (*run)(bool quick);
};
constexpr Check kChecks[] = {
    {"dequantise", [](bool) { DequantiseEqualsTheCpu(); }},
    {"seals", [](bool) { SealsAndPlanesEqualTheCpu(); }},
    {"hash", [](bool) { HashEqualsTheCpu(); }},
    {"nan", [](bool) { NaNSurvives(); }},
    {"posted", [](bool) { BothLayersArePostedBeforeEitherIsWaitedFor(); }},
    {"time-outs", [](bool) { TimeOutsAreBoundedAndSaidAndTheSlotWorksAgain(); }},
    {"graphs", [](bool quick) { GraphsReplayAcrossTheWrapAround(quick ? 4 : 600); }},
};

}  // namespace

int List() {
  for (const Check& check : kChecks) std::puts(check.name);
  return 0;
}

// `only`: the name of one check, or empty.
int Main(bool quick, const std::string& only) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("no GPU: %s\n", cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  if (only.empty())
    std::printf("GPU: %s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::size_t ran = 0;
  for (const Check& check : kChecks) {
    if (!only.empty() && only != check.name) continue;
    check.run(quick);
    ++ran;
  }
  if (ran == 0) std::printf("there is no check %s: see `list`\n", only.c_str());
  return ran > 0 ? 0 : 2;
}

}  // namespace engram::client::gpu

// usage: [list | quick | NAME]
int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "list") return engram::client::gpu::List();
  const bool quick = word == "quick";
  return engram::client::gpu::Main(quick, quick ? "" : word);
}
