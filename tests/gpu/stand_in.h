// A CPU in the GPU's role: runs the ring's protocol and the row functions as the kernels do, the
// same source, with threads for blocks. Its clock counts looks, so that no test depends on time.
// Thread-confined: call from the owner thread only.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "client/gpu/host_model.h"
#include "client/gpu/ring.h"
#include "client/gpu/row_functions.h"

namespace engram::client::gpu {

inline constexpr std::uint64_t kForEver = ~std::uint64_t{0};

struct StandInModel : HostModel {
  std::uint64_t looks = 0;
  std::function<void()> pause;  // null: lets other threads run
  std::uint64_t Now() const { return looks; }
  void Pause() {
    ++looks;
    if (pause != nullptr) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
};

// Memory of a ring with its slots started at `first`.
class RingMemory {
 public:
  RingMemory(const RingShape& shape, Word first)
      : devices(shape.slots),
        shared_(shape.shared_bytes() / sizeof(Page)),
        landing_(shape.landing_bytes() / sizeof(Page)) {
    view.shape = shape;
    view.shared = shared_[0].bytes;
    view.landing = landing_[0].bytes;
    for (std::uint32_t i = 0; i < shape.slots; ++i) StartSlot(view.words(i), devices[i], first);
  }
  RingView view;
  std::vector<DeviceSlot> devices;

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> shared_, landing_;
};

// One stream of the GPU that works on one slot.
class StandIn {
 public:
  StandIn(RingMemory* memory, std::uint32_t slot)
      : view_(memory->view),
        words_(view_.words(slot)),
        device_(memory->devices[slot]),
        slot_(slot) {}

  // ids: [token][layer][column]. As a kernel of `blocks` blocks; each has a thread when there are
  // several. False when the step was not rung.
  bool Post(const std::vector<std::int32_t>& ids, Word tokens, std::uint64_t limit, Word blocks = 1,
            Word kind = 0) {
    const auto block = [&, this](Word number) {
      StandInModel model = blocks == 1 ? model_ : StandInModel();
      const bool may = MayWriteIds(model, words_, device_, limit);
      const IdSource from{ids.data(), std::size_t{view_.shape.layers} * view_.shape.columns,
                          view_.shape.columns};
      if (may && tokens <= view_.shape.max_tokens)
        CopyIds(view_, slot_, from, tokens, number, blocks);
      EndOfIds(model, words_, device_, may, blocks, tokens, kind);
    };
    std::vector<std::thread> others;
    for (Word i = 1; i < blocks; ++i) others.emplace_back(block, i);
    block(0);
    for (std::thread& other : others) other.join();
    return device_.is_rung != 0;
  }
  LayerEnd Wait(std::uint32_t layer, std::uint64_t limit) {
    return AwaitLayer(model_, words_, device_, layer, limit);
  }
  // The layer's rows, dequantised: [token][column][format.value_bytes].
  std::vector<std::uint16_t> Deliver(std::uint32_t layer, RowFormat format, Word tokens) {
    const std::size_t rows = std::size_t{tokens} * view_.shape.columns;
    std::vector<Bf16Output::Eight> out(rows * format.value_bytes / 8);
    Bf16Output to;
    to.rows = reinterpret_cast<std::uint16_t*>(out.data());
    to.row_stride = format.value_bytes;
    to.format = format;
    Landing from;
    from.rows = view_.rows(slot_, layer);
    from.row_stride = view_.shape.row_stride;
    const bool failed = !HasRows(static_cast<LayerEnd>(device_.verdict[layer]));
    for (std::uint32_t i = 0; i < rows; ++i) DeliverRow(from, i, failed, to, i, OneLane());
    return {to.rows, to.rows + rows * format.value_bytes};
  }
  // As the engine sees it, without waiting for the GPU.
  LayerEnd Seen(std::uint32_t layer, Word sequence) {
    LayerEnd end;
    return EndOfLayer(model_, words_, layer, sequence, &end) ? end : LayerEnd::kNotRead;
  }
  Word step() const { return device_.step; }
  SlotWords& words() { return words_; }
  StandInModel& model() { return model_; }

 private:
  const RingView view_;
  SlotWords& words_;
  DeviceSlot& device_;
  const std::uint32_t slot_;
  StandInModel model_;
};

}  // namespace engram::client::gpu
