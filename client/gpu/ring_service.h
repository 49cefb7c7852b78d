// The client's side of the rings (client/gpu/ring.h): looks at the slots' doorbells, has the rows
// of a rung step read into the slot's landing buffers, and tells the GPU layer by layer. It starts
// no thread, waits for nothing and calls nothing of CUDA; client/gpu/ring_poller.h gives it a
// thread. What a step asks for comes from a GPU's memory and is checked: more tokens than fit, or a
// kind that does not exist, refuse the step and never read outside the ring.
// After Open nothing here allocates. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/destination.h"
#include "client/gpu/host_model.h"
#include "client/gpu/ring.h"
#include "client/gpu/step_reads.h"
#include "engram/clock.h"

namespace engram::client::gpu {

class RingService {
 public:
  // Ids of a layer are [0, row_limit) of its own table, which starts at first_row.
  struct Layer {
    std::uint64_t first_row = 0;
    std::uint64_t row_limit = 0;
    Duration needed_in{};  // after the step was seen; 0: no time
  };
  struct Options {
    std::vector<Layer> layers;
    std::uint32_t ngram_rows = 1;  // as in ReadPart; 1 when the columns are not neighbours
    Duration timeout = std::chrono::seconds(1);  // rows that are not there by then have failed
    const Destination* destination = nullptr;    // covers the landing buffers, or null
    const Clock* clock = &SystemClock::Get();
  };
  struct Counters {
    std::uint64_t steps = 0;       // taken
    std::uint64_t superseded = 0;  // the slot was rung again while they were being read
    std::uint64_t refused = 0;     // wrong, or by the reads
    std::uint64_t busy = 0;        // looks at a rung slot while the reads had no room
    std::uint64_t layers_ready = 0, layers_failed = 0;
  };

  // InvalidArgument names the number that cannot be, or does not go with so many layers.
  static absl::Status Check(const RingShape& shape, std::size_t layers);
  // The slots have been started (StartSlot). `reads` outlives the service. Fails as Check.
  static absl::StatusOr<std::unique_ptr<RingService>> Open(const RingView& view, StepReads* reads,
                                                           const Options& options);
  ~RingService() { Close(); }
  RingService(const RingService&) = delete;
  RingService& operator=(const RingService&) = delete;

  // One look at everything; true when something happened.
  bool Serve();
  // A step is being read.
  bool busy() const { return active_ > 0; }
  // Ends what is being read, and tells the GPU of it and of what was rung and not taken. Steps that
  // are rung later wait until their time-out. Idempotent.
  void Close();
  const Counters& counters() const { return counters_; }

 private:
  struct Slot {
    Word taken = 0;  // sequence
    bool active = false;
    Ticket ticket;
    std::uint32_t pending = 0;
    std::vector<bool> told;  // by layer
  };

  RingService(const RingView& view, StepReads* reads, const Options& options);
  bool Take(std::uint32_t index);
  StepReads::Started Start(std::uint32_t index, const Rung& rung, Ticket* ticket);
  bool Settle(std::uint32_t index);
  void Tell(std::uint32_t index, std::uint32_t layer, LayerEnd end);
  void End(std::uint32_t index);

  const RingView view_;
  StepReads& reads_;
  const Options options_;
  HostModel model_;
  std::vector<Slot> slots_;
  std::vector<StepLayer> layers_;  // of the step that is being started
  std::uint32_t active_ = 0;
  bool closed_ = false;
  Counters counters_;
};

}  // namespace engram::client::gpu
