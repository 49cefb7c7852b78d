// The id ring and doorbell between a GPU and the client: the words both see, and the protocol over
// them, as templates over a memory model. The kernels and the CPU's stand-in for them run the same
// source; only loads, stores and the clock differ. Every word has one writer, so no atomic
// read-modify-write crosses the bus. Sequence numbers are 32 bits and wrap around: a is reached by
// b when b - a, as a signed number, is not negative (what a stream memory operation GEQ does, too).
//
// One step in one slot; the GPU's part is queued on a stream and may stand in a captured graph,
// because the sequence number is counted in device memory and not in the graph:
//
//   GPU     waits until drained_seq reaches the last sequence that it rang, then writes ids, tokens
//           and kind, then ids_seq. If the wait ends first the step is not rung and is lost.
//   client  sees ids_seq move, gives up what it still reads for the slot, copies the ids, writes
//           drained_seq; then for each layer, when its rows are there or never will be, status,
//           then done_seq.
//   GPU     for each layer waits until done_seq reaches the step's sequence, and writes how that
//           ended, a time-out too, to its own status word `waited`, which the engine reads without
//           waiting for the GPU. Rows of a layer that did not end well are NaN.
//
// Every wait of the GPU is bounded. A slot may be rung again after a time-out: the client lands
// nothing of the older step any more when it takes the newer one. REQUIRES: what a step queues on
// the GPU is over before the slot's next step rings (one stream, or joined ones).
// Thread class of each side: Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/gpu/host_device.h"

namespace engram::client::gpu {

using Word = std::uint32_t;

inline constexpr std::uint32_t kMaxRingLayers = 16;

// How a layer ended. The GPU's rows of it are NaN unless they are kReady or kRowsFailed.
enum class LayerEnd : Word {
  kPending = 0,
  kReady = 1,       // every row is there
  kRowsFailed = 2,  // failed rows are poison in the landing buffer, or marked in `failed`
  kNotRead = 3,     // the client refused or gave up the step: the landing buffer holds anything
  kTimedOut = 4,    // the GPU's wait ended first
  kNotRung = 5,     // the client had not taken the step before: this one never reached it
};

// One slot: what the GPU writes and what the client writes, each on lines of its own. All words
// start with the same sequence number; the first step has the next one.
struct alignas(128) SlotWords {
  // GPU -> client.
  Word ids_seq;
  Word tokens;
  Word kind;  // StepKind
  // The step whose wait ended last, in the high half, and how (LayerEnd): one word, so that they
  // are always of the same step.
  std::uint64_t waited[kMaxRingLayers];
  // Client -> GPU.
  alignas(128) Word drained_seq;
  Word done_seq[kMaxRingLayers];
  Word status[kMaxRingLayers];  // LayerEnd, of the step in done_seq
};

// What the GPU keeps of a slot in its own memory.
struct DeviceSlot {
  Word step;     // counts the steps
  Word rung;     // the last one that was rung
  Word is_rung;  // the current one was
  Word tokens;   // of the current one
  Word arrived;  // blocks that wrote their ids
  Word refused;  // blocks that might not
  Word verdict[kMaxRingLayers];
};

ENGRAM_HOST_DEVICE inline void StartSlot(SlotWords& words, DeviceSlot& device, Word sequence) {
  words = SlotWords{};
  device = DeviceSlot{};
  words.ids_seq = words.drained_seq = device.step = device.rung = sequence;
  for (std::uint32_t i = 0; i < kMaxRingLayers; ++i) {
    words.done_seq[i] = sequence;
    words.waited[i] = std::uint64_t{sequence} << 32;
  }
}

ENGRAM_HOST_DEVICE constexpr bool Reached(Word now, Word wanted) {
  return static_cast<std::int32_t>(now - wanted) >= 0;
}

// A memory model, as the templates below want it:
//   Word Load(const Word*)         sees everything that was written before the value it reads
//   void Store(Word*, Word)        everything written before is seen by who loads the value
//   void Store(std::uint64_t*, std::uint64_t)   the same
//   Word Add(Word*, Word)          between the blocks of one kernel; returns what was there
//   std::uint64_t Now()            ticks; a wait's limit is in ticks
//   void Pause()                   between two looks

// False when `limit` ticks passed first.
template <class Model>
ENGRAM_HOST_DEVICE bool AwaitReached(Model& model, const Word* word, Word wanted,
                                     std::uint64_t limit) {
  if (Reached(model.Load(word), wanted)) return true;
  const std::uint64_t start = model.Now();
  do {
    model.Pause();
    if (Reached(model.Load(word), wanted)) return true;
  } while (model.Now() - start < limit);
  return false;
}

// ---- the GPU's side ----

// Each block of the kernel that posts ids, before it writes any: whether it may.
template <class Model>
ENGRAM_HOST_DEVICE bool MayWriteIds(Model& model, const SlotWords& words, const DeviceSlot& device,
                                    std::uint64_t limit) {
  return AwaitReached(model, &words.drained_seq, device.rung, limit);
}

// Each block, when its ids are written: the last one rings, if all might write, and starts the next
// step in any case.
template <class Model>
ENGRAM_HOST_DEVICE void EndOfIds(Model& model, SlotWords& words, DeviceSlot& device, bool may,
                                 Word blocks, Word tokens, Word kind) {
  if (!may) model.Add(&device.refused, 1);
  if (model.Add(&device.arrived, 1) + 1 != blocks) return;
  const bool is_rung = model.Load(&device.refused) == 0;
  device.arrived = device.refused = 0;
  ++device.step;
  device.is_rung = is_rung ? 1 : 0;
  device.tokens = tokens;
  if (!is_rung) return;
  device.rung = device.step;
  model.Store(&words.tokens, tokens);
  model.Store(&words.kind, kind);
  model.Store(&words.ids_seq, device.step);
}

// One thread, for one layer of the current step.
template <class Model>
ENGRAM_HOST_DEVICE LayerEnd AwaitLayer(Model& model, SlotWords& words, DeviceSlot& device,
                                       std::uint32_t layer, std::uint64_t limit) {
  LayerEnd end = LayerEnd::kNotRung;
  if (device.is_rung != 0) {
    end = AwaitReached(model, &words.done_seq[layer], device.step, limit)
              ? static_cast<LayerEnd>(model.Load(&words.status[layer]))
              : LayerEnd::kTimedOut;
  }
  device.verdict[layer] = static_cast<Word>(end);
  model.Store(&words.waited[layer],
              std::uint64_t{device.step} << 32 | static_cast<std::uint64_t>(end));
  return end;
}

// Whether the rows of the landing buffer may be used at all.
ENGRAM_HOST_DEVICE constexpr bool HasRows(LayerEnd end) {
  return end == LayerEnd::kReady || end == LayerEnd::kRowsFailed;
}

// ---- the client's side ----

struct Rung {
  Word sequence = 0, tokens = 0, kind = 0;
};

// True when the slot was rung since `taken`, the sequence that was taken last.
template <class Model>
bool WasRung(Model& model, const SlotWords& words, Word taken, Rung* rung) {
  const Word sequence = model.Load(&words.ids_seq);
  if (sequence == taken) return false;
  *rung = {sequence, model.Load(&words.tokens), model.Load(&words.kind)};
  return true;
}

// The ids were copied: the GPU may write others.
template <class Model>
void TellDrained(Model& model, SlotWords& words, Word sequence) {
  model.Store(&words.drained_seq, sequence);
}

template <class Model>
void TellDone(Model& model, SlotWords& words, std::uint32_t layer, Word sequence, LayerEnd end) {
  model.Store(&words.status[layer], static_cast<Word>(end));
  model.Store(&words.done_seq[layer], sequence);
}

// What the engine may know of a layer of step `sequence` without waiting for the GPU: how the GPU's
// wait ended, or before that kPending. False when the slot is at a later step already.
template <class Model>
bool EndOfLayer(Model& model, const SlotWords& words, std::uint32_t layer, Word sequence,
                LayerEnd* end) {
  const std::uint64_t waited = model.Load(&words.waited[layer]);
  const auto step = static_cast<Word>(waited >> 32);
  *end = step == sequence ? static_cast<LayerEnd>(waited & 0xff) : LayerEnd::kPending;
  return step == sequence || !Reached(step, sequence);
}

// ---- where things lie ----

struct RingShape {
  std::uint32_t slots = 2;  // at least 2
  std::uint32_t layers = 0;
  std::uint32_t columns = 0;  // of a layer, that this rank reads
  std::uint32_t max_tokens = 0;
  bool wide_ids = false;           // int64, else int32
  std::uint32_t row_bytes = 0;     // packed, without seal
  std::uint32_t row_stride = 0;    // of the landing buffers; a multiple of 8
  bool failed_are_marked = false;  // landing out of the CPU's reach: one byte a row says so

  ENGRAM_HOST_DEVICE std::size_t id_bytes() const { return wide_ids ? 8 : 4; }
  ENGRAM_HOST_DEVICE std::size_t layer_rows() const { return std::size_t{max_tokens} * columns; }
  // Rounded up to whole pages, so that no two slots share one.
  ENGRAM_HOST_DEVICE std::size_t slot_id_bytes() const {
    return Pages(layer_rows() * layers * id_bytes());
  }
  ENGRAM_HOST_DEVICE std::size_t slot_landing_bytes() const {
    return Pages(layer_rows() * layers * row_stride);
  }
  ENGRAM_HOST_DEVICE std::size_t slot_failed_bytes() const {
    return failed_are_marked ? Pages(layer_rows() * layers) : 0;
  }
  ENGRAM_HOST_DEVICE std::size_t words_bytes() const { return Pages(slots * sizeof(SlotWords)); }
  // Of the memory that both sides see: words, then the slots' ids, then their marks of failed rows.
  ENGRAM_HOST_DEVICE std::size_t shared_bytes() const {
    return words_bytes() + slots * (slot_id_bytes() + slot_failed_bytes());
  }
  ENGRAM_HOST_DEVICE std::size_t landing_bytes() const { return slots * slot_landing_bytes(); }

  static ENGRAM_HOST_DEVICE constexpr std::size_t Pages(std::size_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
  }
};

// The memory as one side sees it. A value.
struct RingView {
  RingShape shape;
  std::byte* shared = nullptr;   // shape.shared_bytes(), page-aligned
  std::byte* landing = nullptr;  // shape.landing_bytes(), page-aligned

  ENGRAM_HOST_DEVICE SlotWords& words(std::uint32_t slot) const {
    return reinterpret_cast<SlotWords*>(shared)[slot];
  }
  // Ids of a slot: [token][layer][column].
  ENGRAM_HOST_DEVICE std::byte* ids(std::uint32_t slot) const {
    return shared + shape.words_bytes() + slot * shape.slot_id_bytes();
  }
  // Rows of a layer of a slot: [token][column].
  ENGRAM_HOST_DEVICE std::byte* rows(std::uint32_t slot, std::uint32_t layer) const {
    return landing + slot * shape.slot_landing_bytes() +
           layer * shape.layer_rows() * shape.row_stride;
  }
  // Marks of failed rows, or null: [token][column].
  ENGRAM_HOST_DEVICE std::uint8_t* failed(std::uint32_t slot, std::uint32_t layer) const {
    if (!shape.failed_are_marked) return nullptr;
    return reinterpret_cast<std::uint8_t*>(shared) + shape.words_bytes() +
           shape.slots * shape.slot_id_bytes() + slot * shape.slot_failed_bytes() +
           layer * shape.layer_rows();
  }
};

// Row ids in the GPU's memory, as wide as the ring's: id of (token, layer, column) is at
// token * token_stride + layer * layer_stride + column.
struct IdSource {
  const void* ids = nullptr;
  std::size_t token_stride = 0, layer_stride = 0;
};

// Copies what worker `worker` of `workers` copies of the ids of the first `tokens` tokens.
ENGRAM_HOST_DEVICE inline void CopyIds(const RingView& view, std::uint32_t slot,
                                       const IdSource& from, Word tokens, std::size_t worker,
                                       std::size_t workers) {
  const RingShape& shape = view.shape;
  const std::size_t per_token = std::size_t{shape.layers} * shape.columns;
  for (std::size_t i = worker; i < tokens * per_token; i += workers) {
    const std::size_t layer = i % per_token / shape.columns;
    const std::size_t at = i / per_token * from.token_stride + layer * from.layer_stride +
                           i % per_token % shape.columns;
    if (shape.wide_ids) {
      reinterpret_cast<std::int64_t*>(view.ids(slot))[i] =
          static_cast<const std::int64_t*>(from.ids)[at];
    } else {
      reinterpret_cast<std::int32_t*>(view.ids(slot))[i] =
          static_cast<const std::int32_t*>(from.ids)[at];
    }
  }
}

}  // namespace engram::client::gpu
