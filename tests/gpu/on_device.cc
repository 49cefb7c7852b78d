// What only a GPU can tell (tests/gpu/run.sh): that the kernels give the bits that the CPU gives,
// and that posting, waiting and delivering work inside a captured graph that is replayed. Exits
// with 77 where there is no GPU. Every check prints a line; the first that fails ends the program,
// so run.sh runs each by its name.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/gpu/device/hasher.h"
#include "client/gpu/plans.h"
#include "engram/poison.h"
#include "engram/sealed_row.h"
#include "tests/gpu/graph_scene.h"

cudaError_t LaunchQuantise(const void* bf16, std::uint32_t count, float* sums, cudaStream_t stream);

namespace engram::client::gpu {
namespace {

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
  constexpr std::uint64_t kShortNs = 2'000'000'000;  // five of them pass
  Scene scene(5, kShortNs);
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
      kShortNs / 1e6, late_us / 1e3);
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

// ---- how fast, for people ----

// us a replay, one after the other.
double PerReplay(const Scene& scene, cudaGraphExec_t graph, std::uint32_t times) {
  Instant start;
  for (std::uint32_t i = 0; i <= times; ++i) {
    if (i == 1) start = SystemClock::Get().Now();  // the first one warms up
    CUDA(cudaGraphLaunch(graph, scene.stream));
    CUDA(cudaStreamSynchronize(scene.stream));
  }
  return Microseconds(start) / times;
}

// A step without tokens is rung, answered and waited for, and nothing is read.
void Doorbell(std::uint32_t times) {
  Scene scene(0);
  CUDA(cudaMemcpy(scene.live[0].as<void>(), &scene.tokens[0], 4, cudaMemcpyHostToDevice));
  const double rung = PerReplay(scene, scene.graphs[0], times);
  REQUIRE(scene.End(0, kLayers - 1, times + 1) == LayerEnd::kReady);
  cudaGraphExec_t delivery = scene.Capture(0, /*rings=*/false);
  const double delivered = PerReplay(scene, delivery, times);
  cudaGraphExecDestroy(delivery);
  std::printf(
      "ok doorbell: a step without tokens takes %.1f us, its deliveries alone %.1f us; %u of "
      "each\n",
      rung, delivered, times);
}

// GB/s of packed rows that are gathered and dequantised.
double DeliveryRate(const std::byte* rows, std::uint32_t count, const DeviceMemory& out,
                    std::uint32_t times) {
  Landing from;
  from.rows = rows;
  from.row_stride = kFormat.row_bytes();
  Instant start;
  for (std::uint32_t i = 0; i <= times; ++i) {
    if (i == 1) start = SystemClock::Get().Now();
    CUDA(LaunchDeliver(from, Bf16Output{out.as<std::uint16_t>(), kFormat.value_bytes, kFormat, {}},
                       AllRows(count), nullptr));
    CUDA(cudaStreamSynchronize(nullptr));
  }
  return static_cast<double>(count) * kFormat.row_bytes() * times / Microseconds(start) / 1e3;
}

void Rates(bool quick) {
  const std::uint32_t count = quick ? 240 : 4096 * kColumns, times = quick ? 1 : 20;
  const std::size_t bytes = std::size_t{count} * kFormat.row_bytes();
  const DeviceMemory out = *DeviceMemory::Create(std::size_t{count} * kFormat.value_bytes * 2);
  const DeviceMemory near = *DeviceMemory::Create(bytes);
  const PinnedMemory far = *PinnedMemory::Create(bytes);
  std::printf(
      "ok rates: %u rows at once, %.1f GB/s from GPU memory, %.1f GB/s from pinned memory\n", count,
      DeliveryRate(near.as<std::byte>(), count, out, times),
      DeliveryRate(far.device(), count, out, times));
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
    {"doorbell", [](bool quick) { Doorbell(quick ? 4 : 1000); }},
    {"rates", Rates},
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
