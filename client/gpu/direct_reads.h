// Steps of a ring read straight into the memory of a GPU. The CPU never touches the landing
// buffers: rows and their seals land there as they are stored, a kernel checks the seals and fills
// in zeros and NaN, and `row_status` of each part, in host memory that the GPU sees, marks the rows
// that are not there. Each row is read once, from its best replica whose fabric can land in the
// GPU's memory; a row that fails is marked, not read again, and nothing is hedged or shared; a step
// that is given up takes the rows with it that others have under way with the same node. What fails
// often belongs on the path through host memory. What RowReader promises holds here, too: a
// layer that is not pending has no read outstanding, and is ready only if the leases were valid
// after the last completion. Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gpu/gpu_direct.h"
#include "client/gpu/step_reads.h"
#include "client/quiescence.h"
#include "client/route_board.h"
#include "client/row_reader.h"

namespace engram::client::gpu {

class DirectReads final : public StepReads {
 public:
  struct Options {
    std::shared_ptr<const ReadTable> table;  // sealed: nobody else would notice a wrong row
    RouteBoard* board = nullptr;             // outlives this
    std::vector<fabric::Fabric*> fabrics;    // outlive this; Route::fabric indexes them
    std::span<std::byte> landing;            // of the GPU; parts land in it
    const Clock* clock = &SystemClock::Get();
    std::uint32_t steps = 2;
    std::uint32_t max_step_rows = 1u << 16;
    std::uint32_t queue_depth = 8192;
  };
  // The licence is the machine's, for one of the fabrics; those that cannot land in its device are
  // not used. FailedPrecondition: none can. InvalidArgument: the table is not sealed.
  static absl::StatusOr<std::unique_ptr<DirectReads>> Open(const Options& options,
                                                           const DirectLicence& licence);
  ~DirectReads() override;

  // Parts have `row_status`, and row_stride of at least the stored row with its seal.
  Started Submit(const Step& step, Ticket* ticket) override;
  void Progress() override;
  LayerState State(Ticket ticket, std::uint32_t layer) override;
  void Release(Ticket ticket) override;
  bool Flush() override { return licence_.Flush(); }

 private:
  struct Row {
    const Route* route = nullptr;
    std::uint32_t offset = 0;
    std::uint8_t layer = 0;
    bool in_flight = false;
    std::byte* out = nullptr;
    ReadStatus* status = nullptr;
  };
  struct Layer {
    std::uint32_t begin = 0, end = 0;  // rows
    std::uint32_t open = 0, failed = 0;
    std::uint64_t session_bits = 0;
    LayerState state = LayerState::kPending;
  };
  struct OneStep {
    bool active = false;
    std::uint32_t generation = 0;
    Instant deadline;
    RouteVersion pass;
    const Routes* routes = nullptr;
    bool pass_open = false;
    std::vector<Layer> layers;
    std::vector<Row> rows;
    std::uint32_t row_count = 0, cursor = 0, in_flight = 0;
  };
  struct Queue {
    std::unique_ptr<fabric::MemoryRegion> region;  // null: cannot land in the device
    std::unique_ptr<fabric::ReadQueue> queue;
  };

  DirectReads(const Options& options, const DirectLicence& licence);
  absl::Status OpenQueues();
  void Resolve(OneStep& step, std::uint8_t layer, const ReadPart& part);
  const Route* RouteOf(const Routes& routes, ShardIndex shard) const;
  void Start(OneStep& step, std::uint32_t index);
  void Drain();
  void Ended(OneStep& step, Row& row, ReadStatus status);
  void Settle(OneStep& step, Layer& layer);
  void EndStep(OneStep& step, ReadStatus why);

  const Options options_;
  const DirectLicence licence_;
  const std::uint32_t stride_;  // of a stored row
  QuiescenceReader passes_;
  std::vector<Queue> queues_;
  std::vector<OneStep> steps_;
};

}  // namespace engram::client::gpu
