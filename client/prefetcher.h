// Starts the reads of a whole step at once, so that each layer's rows are in place when the layer
// runs. Keeps no sequence state and reads rows through one RowReader; adds to it what a step needs:
//   - a ticket with a state per layer: wait, poll and cancel layer by layer;
//   - service by deadline across tickets: decode and verify before prefill, then by needed_by;
//     steps too large for one request are read in slices, so an urgent step waits for a slice at
//     most, and prefill never takes all of the reader's slots;
//   - late layers (not ready at needed_by) are counted and hedged, and go on until the deadline;
//   - hints: rows that are only put into the reader's cache, while no step is under way;
//   - bounds: beyond them Submit says busy; after Open nothing here allocates.
// Reads make progress only inside Submit, Progress, Wait and Cancel. The promises of RowReader hold
// for every layer: no late landing, skipped rows zeros, failed rows poison and marked.
// Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/row_reader.h"
#include "client/ticket.h"
#include "engram/addressing.h"

namespace engram::client {

// One layer by row ids. Ids are copied before Submit returns; `rows.row_status` may be null.
struct StepLayer {
  ReadPart rows;
  Instant needed_by = Instant::max();  // max: never late, served last
};

struct Step {
  StepKind kind = StepKind::kDecode;
  std::span<const StepLayer> layers;
  Instant deadline;                          // rows that are not there by then have failed
  const Destination* destination = nullptr;  // as in ReadRequest
};

// All layers of the table by token ids; row (token, layer, column) lands at
// out + token * token_stride + layer * layer_stride + column * row_stride, column counting those
// that are read: first_column + i * column_step of each layer. Split rows: ReadPart::split_bytes;
// their other plane has the same layer_stride.
struct TokenStep {
  StepKind kind = StepKind::kDecode;
  TokenSpan tokens;
  std::span<const Instant> needed_by;  // one per layer, or empty
  Instant deadline;
  const Destination* destination = nullptr;
  std::byte* out = nullptr;
  std::size_t token_stride = 0, layer_stride = 0, row_stride = 0;
  std::uint32_t first_column = 0, columns = 0, column_step = 1;  // 0 columns: all
  std::uint32_t split_bytes = 0;
  std::byte* rest = nullptr;
  std::size_t rest_token_stride = 0, rest_row_stride = 0;
  ReadStatus* row_status = nullptr;  // null, or [layer][token][column]
};

class Prefetcher {
 public:
  static constexpr std::uint32_t kMaxLayers = 64;
  static constexpr std::uint32_t kMostUnitRows = 1024;

  struct Options {
    std::uint32_t tickets = 8;     // steps that are not released yet, at most 1024
    std::uint32_t max_layers = 8;  // of one step, at most kMaxLayers
    std::uint32_t max_step_rows = 1u << 18;
    std::uint32_t ngram_rows = 1;            // consecutive columns that repeat together: heads
    std::uint32_t prefill_slots = 4;         // of the reader's, at most one less than it has
    const Addressing* addressing = nullptr;  // null: no token steps; outlives the prefetcher
    std::uint32_t layers = 0;                // of the table, for token steps
    // With a reader that has a cache: one of its slots is for hints; rows that are hinted and wait,
    // at most; n-grams that are read at once and stay in the cache.
    std::uint32_t hint_rows = 1u << 15;
    std::vector<HotNgram> pinned;
  };
  // Sizes that suit a prefetcher: requests of 3,072 rows (64 tokens of 48), 16 of them, hedges.
  static RowReader::Options ReaderOptions();

  // `reader` has no request outstanding; nobody else uses it from here on.
  static absl::StatusOr<std::unique_ptr<Prefetcher>> Open(std::unique_ptr<RowReader> reader,
                                                          const Options& options);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Starts every layer. *ticket is set only when kStarted is returned; the caller must Release it.
  SubmitStatus Submit(const Step& step, Ticket* ticket);
  SubmitStatus Submit(const TokenStep& step, Ticket* ticket);
  // The last refusal of Submit, for people.
  absl::Status refusal() const;

  // Rows that a later step may want: they are put into the cache while no step is under way, or
  // dropped. Returns how many rows were taken; `out` and `row_status` of the part are not looked
  // at. Without a cache, and where rows are mapped, none are.
  std::uint64_t Hint(const ReadPart& rows);
  // All layers of the table by token ids; kNoAddressing or kBadTokens, else kStarted.
  SubmitStatus Hint(const TokenSpan& tokens, std::uint64_t* taken);
  // The n-grams of the cache with the most hits; looks at all of it, and allocates.
  std::vector<HotNgram> Hottest(std::size_t most) const;

  // Drives everything; never blocks, except to flush reads whose deadline has passed.
  void Progress();
  // Layers are numbered as they were submitted.
  LayerState State(Ticket ticket, std::uint32_t layer) const;
  bool Done(Ticket ticket) const;  // no layer is pending; true for a released ticket
  bool Late(Ticket ticket, std::uint32_t layer) const;
  // Progress() until the layer (all layers) is not pending or `until` passes; false then.
  bool Wait(Ticket ticket, std::uint32_t layer, Instant until);
  bool WaitAll(Ticket ticket, Instant until);
  // The layer (every layer) is not pending when it returns.
  void Cancel(Ticket ticket, std::uint32_t layer);
  void CancelAll(Ticket ticket);
  // Cancels what is pending and frees the ticket. Released tickets are ignored.
  void Release(Ticket ticket);

  // REQUIRES: the ticket is not released.
  WorstRow Worst(Ticket ticket, std::uint32_t layer) const;
  const ReadFailure& Failure(Ticket ticket) const;  // what went wrong first
  std::uint32_t layers(Ticket ticket) const;
  // The layer's rows: once it is not pending, row_status has one status a row. Null: no such layer.
  const ReadPart* Rows(Ticket ticket, std::uint32_t layer) const;

  // To sleep outside: as RowReader::Arm.
  bool Arm(Instant now, RowReader::Nap* nap);
  // True while Progress has something to do.
  bool busy() const { return pending_layers_ > 0 || reader_->hedging() || hints_outstanding(); }
  // Grows whenever a read completes or a layer is settled.
  std::uint64_t events() const { return reader_->completions() + settled_; }
  const RowReader& reader() const { return *reader_; }

 private:
  struct Layer {
    ReadPart part;
    Instant needed_by;
    std::uint32_t rows = 0;
    std::uint32_t arrived = 0;  // rows of slices that were reported
    std::uint32_t next = 0;     // units (runs, or rows of a single run) that were started
    std::uint32_t units = 0;
    std::uint32_t flights = 0;  // requests of the reader that hold rows of it
    LayerState state = LayerState::kPending;
    bool late = false, failed = false, cancelled = false;
  };
  struct Work {  // what a ticket names
    std::uint32_t generation = 0;
    bool active = false;
    StepKind kind = StepKind::kDecode;
    Instant deadline;
    const Destination* destination = nullptr;
    std::uint32_t layer_count = 0, pending = 0;
    std::vector<Layer> layers;
    std::unique_ptr<std::uint64_t[]> ids;      // max_step_rows
    std::unique_ptr<ReadStatus[]> row_status;  // max_step_rows
    ReadFailure failure;
  };
  struct Flight {  // one request of the reader
    bool active = false;
    std::uint32_t work = 0;
    std::uint32_t parts = 0;
    std::uint32_t slice_rows = 0;                // of a slice; 0: every part is a whole layer
    std::array<std::uint8_t, kMaxLayers> layer;  // of each part
    std::uint64_t reported = 0;                  // parts
  };

  struct Hints {
    std::uint32_t unit_rows = 1;
    std::uint32_t units = 0, first = 0, count = 0;  // of the ring
    std::vector<RowId> ids;                         // unit_rows a unit
    std::vector<std::uint16_t> rows;                // of each unit
    RowReader::Slot slot = RowReader::kNoSlot;      // of the one request
    bool pinning = false;                           // it reads pinned n-grams
    std::size_t first_pinned = 0, next_pinned = 0;
    std::vector<RowId> flight_ids, token_ids;
    std::vector<ReadStatus> status;
    std::vector<std::byte> out;
    std::vector<const std::byte*> from;
  };

  Prefetcher(std::unique_ptr<RowReader> reader, const Options& options);
  void OpenHints();
  bool HintUnit(const RowId* ids, std::uint32_t rows);
  template <class Next>
  std::uint32_t LoadHints(Next next);
  void StartHints();
  void GatherHints();
  void ServeHints();
  bool hints_waiting() const {
    return hints_.count > 0 || hints_.next_pinned < options_.pinned.size();
  }
  bool hints_outstanding() const { return hints_.slot != RowReader::kNoSlot || hints_waiting(); }
  void FillUnread(const ReadPart& part, ReadStatus why);
  std::uint32_t Missing(std::uint32_t index, std::uint32_t layer) const;
  Work* Find(Ticket ticket);
  const Work* Find(Ticket ticket) const;
  SubmitStatus Refuse(SubmitStatus why);
  std::uint32_t FreeWork() const;
  Ticket Begin(std::uint32_t index, const Step& step);
  bool Fits(const Step& step, std::uint64_t* rows) const;
  bool StartWhole(std::uint32_t index);
  void KeepIds(Work& work);
  void StartMore();
  bool MayStart(StepKind kind) const;
  bool StartSlice(std::uint32_t index, std::uint32_t layer);
  void Fly(RowReader::Slot slot, std::uint32_t index, std::span<const std::uint8_t> layers);
  void Gather(Instant now);
  void GatherFlight(RowReader::Slot slot, Instant now);
  void SettleLayer(Work& work, Layer& layer);
  void Overdue(Instant now);
  void CountLate(Layer& layer, std::uint32_t rows);
  void HedgeLayer(std::uint32_t index, std::uint32_t layer);
  void DropUnstarted(Layer& layer, ReadStatus why);
  template <class Ready>
  bool WaitFor(Ready ready, Instant until);

  const Options options_;
  std::vector<Work> works_;
  Hints hints_;
  // Before the memory of works and hints goes, its end marks the rows that are still being read.
  const std::unique_ptr<RowReader> reader_;
  const Clock& clock_;
  const std::vector<std::byte> zero_row_;
  std::vector<Flight> flights_;     // by slot of the reader
  const std::uint32_t step_slots_;  // of them, for steps
  std::uint32_t flying_ = 0, prefill_flying_ = 0;
  std::uint32_t unstarted_ = 0;  // layers with rows that were not started
  std::uint32_t pending_layers_ = 0;
  std::uint64_t settled_ = 0;
  Instant next_due_ = Instant::max();  // when Overdue has something to do
  // Of one Submit; members, because filling them in anew costs as much as a small step.
  std::array<StepLayer, kMaxLayers> token_layers_;
  std::array<ReadPart, kMaxLayers> whole_parts_;
  SubmitStatus refusal_ = SubmitStatus::kStarted;
  absl::Status bad_tokens_;
};

}  // namespace engram::client
