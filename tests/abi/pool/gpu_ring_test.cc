// The ring of the GPU path over the C ABI and a real pool, with a CPU in the GPU's role: what
// libengram_gpu does, less the GPU.
#include "client/gpu/device/abi_reads.h"
#include "client/gpu/ring_poller.h"
#include "client/gpu/ring_service.h"
#include "opened.h"
#include "tests/gpu/stand_in.h"

namespace engram::abi_test {
namespace {

using client::gpu::AbiReads;
using client::gpu::DequantiseBf16;
using client::gpu::kBf16Nan;
using client::gpu::kForEver;
using client::gpu::LayerEnd;
using client::gpu::RingMemory;
using client::gpu::RingPoller;
using client::gpu::RingService;
using client::gpu::RingShape;
using client::gpu::RowFormat;
using client::gpu::StandIn;
using client::gpu::Word;

constexpr std::uint32_t kStepTokens = 4;

class GpuRing {
 public:
  GpuRing(const char* fabric, Duration timeout) : opened_(fabric) {
    RingShape shape;
    shape.layers = kLayers;
    shape.columns = kColumns;
    shape.max_tokens = kStepTokens;
    shape.row_bytes = shape.row_stride = kRowBytes;
    memory_ = std::make_unique<RingMemory>(shape, 0xfffffffe);
    auto reads = AbiReads::Open(opened_.table, shape.slots, kStepTokens * kLayers * kColumns,
                                {memory_->view.landing, shape.landing_bytes()});
    EXPECT_TRUE(reads.ok()) << reads.status();
    reads_ = *std::move(reads);
    RingService::Options options;
    options.timeout = timeout;
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      auto layer = Sized<engram_layer_info>();
      ExpectOk(engram_table_get_layer(opened_.table, i, &layer));
      options.layers.push_back({layer.first_row, layer.rows, std::chrono::milliseconds(i + 1)});
      first_[i] = layer.first_row;
      rows_ = static_cast<std::int32_t>(layer.rows);
    }
    service_ = *RingService::Open(memory_->view, reads_.get(), options);
    poller_ = *RingPoller::Start(service_.get(), {});
  }

  // A step of drawn ids, some of them skipped; "rr" when both layers are ready and right, 'n' for a
  // layer that did not end well and is NaN, '?' otherwise.
  std::string Step(std::uint32_t slot, std::int32_t bad_id = -1, Word tokens = kStepTokens) {
    std::vector<std::int32_t> ids;
    for (std::uint32_t i = 0; i < tokens * kLayers * kColumns; ++i) {
      draws_ = draws_ * 6364136223846793005u + 1442695040888963407u;
      ids.push_back(i % 11 == 3 ? -1 : static_cast<std::int32_t>((draws_ >> 33) % 40'000));
    }
    if (bad_id >= 0) ids[5] = bad_id;
    StandIn gpu(memory_.get(), slot);
    EXPECT_TRUE(gpu.Post(ids, tokens, kForEver));
    std::string out;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const LayerEnd end = gpu.Wait(layer, kForEver);
      out += Look(end, gpu.Deliver(layer, RowFormat{kValues}, tokens), ids, layer);
    }
    return out;
  }
  std::int32_t rows() const { return rows_; }

 private:
  char Look(LayerEnd end, const std::vector<std::uint16_t>& got,
            const std::vector<std::int32_t>& ids, std::uint32_t layer) {
    std::size_t right = 0, nan = 0;
    for (std::size_t row = 0; row < got.size() / kValues; ++row) {
      const std::int32_t id = ids[(row / kColumns * kLayers + layer) * kColumns + row % kColumns];
      std::vector<std::byte> golden(kRowBytes);
      if (id >= 0) golden = Golden(first_[layer] + static_cast<std::uint64_t>(id));
      for (std::size_t i = 0; i < kValues; ++i) {
        const std::uint16_t bits = got[row * kValues + i];
        right += bits == DequantiseBf16(static_cast<std::uint8_t>(golden[i]),
                                        static_cast<std::uint8_t>(golden[kValues + i / 32]), {});
        nan += bits == kBf16Nan;
      }
    }
    if (end == LayerEnd::kReady) return right == got.size() ? 'r' : '?';
    return nan > 0 && (end == LayerEnd::kRowsFailed || nan == got.size()) ? 'n' : '?';
  }

  Opened opened_;
  std::unique_ptr<RingMemory> memory_;
  std::unique_ptr<AbiReads> reads_;
  std::unique_ptr<RingService> service_;
  std::unique_ptr<RingPoller> poller_;
  std::array<std::uint64_t, kLayers> first_{};
  std::int32_t rows_ = 0;
  std::uint64_t draws_ = 1;
};

TEST(GpuRingTest, StepsOfTwoSlotsArriveOverEveryFabric) {
  for (const char* fabric : {"mapped", "stream"}) {
    GpuRing ring(fabric, std::chrono::seconds(60));
    for (std::uint32_t step = 0; step < 6; ++step)
      EXPECT_EQ(ring.Step(step % 2, -1, step == 3 ? 1 : kStepTokens), "rr") << fabric;
  }
}

TEST(GpuRingTest, AnIdBeyondItsLayerIsNaNInItsLayerAndTheNextStepArrives) {
  GpuRing ring(nullptr, std::chrono::seconds(60));
  EXPECT_EQ(ring.Step(0, ring.rows()), "nr") << "the other layer is there";
  EXPECT_EQ(ring.Step(0), "rr");
}

TEST(GpuRingTest, NodesThatStandStillMakeNaNAndTheNextStepArrives) {
  GpuRing ring("stream", std::chrono::seconds(1));
  const auto arrives = [&] {  // a slow machine may not make it within the step's time
    int tries = 0;
    while (tries < 100 && ring.Step(1) != "rr") ++tries;
    return tries < 100;
  };
  EXPECT_TRUE(arrives());
  {
    const StoppedNodes stopped;
    EXPECT_EQ(ring.Step(1), "nn");
  }
  EXPECT_TRUE(arrives());
}

}  // namespace
}  // namespace engram::abi_test
