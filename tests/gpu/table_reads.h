// The reads of a ring without a pool: rows of a table that is a function, copied into the landing
// buffers by the thread that serves, a layer at a time, when the test lets it. Counts what it sees.
// Submit and what follows are Thread-confined: call from the owner thread only; `open` and
// `submitted` may be used by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "client/gpu/step_reads.h"
#include "engram/check.h"

namespace engram::client::gpu {

inline std::byte TableByte(std::uint64_t row, std::uint32_t at) {
  const std::uint64_t mixed = (row * 0x9e3779b97f4a7c15u) ^ (at * 0xbf58476d1ce4e5b9u);
  return static_cast<std::byte>(mixed >> 32 ^ mixed >> 11);
}

class TableReads final : public StepReads {
 public:
  TableReads(std::uint32_t steps, std::uint32_t row_bytes) : row_bytes_(row_bytes), steps_(steps) {}

  std::atomic<std::uint32_t> open{~0u};     // bit i: layer i may be read
  std::atomic<std::uint64_t> submitted{0};  // steps, each with all its layers

  Started Submit(const Step& step, Ticket* ticket) override {
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].active) continue;
      steps_[i].active = true;
      steps_[i].layers.clear();
      for (const StepLayer& layer : step.layers) steps_[i].layers.push_back(Copy(layer.rows));
      *ticket = {i, 1};
      submitted.fetch_add(1);
      return Started::kStarted;
    }
    return Started::kBusy;
  }
  void Progress() override {
    const std::uint32_t may = open.load();
    for (OneStep& step : steps_) {
      for (std::size_t i = 0; step.active && i < step.layers.size(); ++i) {
        if ((may >> i & 1) != 0 && !step.layers[i].done) Read(step.layers[i]);
      }
    }
  }
  LayerState State(Ticket ticket, std::uint32_t layer) override {
    return steps_[ticket.index].layers[layer].done ? LayerState::kReady : LayerState::kPending;
  }
  void Release(Ticket ticket) override { steps_[ticket.index].active = false; }

 private:
  struct OneLayer {
    ReadPart part;
    std::vector<std::int32_t> ids;
    bool done = false;
  };
  struct OneStep {
    bool active = false;
    std::vector<OneLayer> layers;
  };

  static OneLayer Copy(const ReadPart& part) {
    ENGRAM_CHECK(part.id_kind == ReadPart::IdKind::kInt32);
    OneLayer out{part, {}, false};
    const auto* ids = static_cast<const std::int32_t*>(part.ids);
    for (std::uint32_t run = 0; run < part.runs; ++run)
      out.ids.insert(out.ids.end(), ids + run * part.run_id_stride,
                     ids + run * part.run_id_stride + part.run_rows);
    return out;
  }
  void Read(OneLayer& layer) {
    for (std::size_t i = 0; i < layer.ids.size(); ++i) {
      std::byte* const out = layer.part.out + i * layer.part.row_stride;
      if (layer.ids[i] < 0) {
        std::memset(out, 0, row_bytes_);
        continue;
      }
      const std::uint64_t row = static_cast<std::uint64_t>(layer.ids[i]) + layer.part.first_row;
      for (std::uint32_t k = 0; k < row_bytes_; ++k) out[k] = TableByte(row, k);
    }
    layer.done = true;
  }

  const std::uint32_t row_bytes_;
  std::vector<OneStep> steps_;
};

}  // namespace engram::client::gpu
