#include "client/gpu/direct_reads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::client::gpu {

absl::StatusOr<std::unique_ptr<DirectReads>> DirectReads::Open(const Options& options,
                                                               const DirectLicence& licence) {
  if (options.table->layout.seal() == SealKind::kNone) {
    return absl::InvalidArgumentError(
        "rows of a table without seals do not land in a GPU's memory: nobody would notice a wrong "
        "one; load the table with --seal crc32c, or land in host memory");
  }
  std::unique_ptr<DirectReads> out(new DirectReads(options, licence));
  if (absl::Status status = out->OpenQueues(); !status.ok()) return status;
  return out;
}

DirectReads::DirectReads(const Options& options, const DirectLicence& licence)
    : options_(options),
      licence_(licence),
      stride_(options.table->layout.stride()),
      passes_(options.board->quiescence()),
      queues_(options.fabrics.size()),
      steps_(options.steps) {
  for (OneStep& step : steps_) step.rows.resize(options.max_step_rows);
}

absl::Status DirectReads::OpenQueues() {
  bool any = false;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    fabric::Fabric& fabric = *options_.fabrics[i];
    if (!fabric.info().device_memory) continue;
    auto region = fabric.Register(options_.landing, licence_.device().kind());
    if (!region.ok()) return region.status();
    auto queue = fabric.OpenQueue({options_.queue_depth, {}});
    if (!queue.ok()) return queue.status();
    queues_[i] = {*std::move(region), *std::move(queue)};
    any = true;
  }
  if (any) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no fabric of this client can land in the memory of a GPU: land in host memory");
}

DirectReads::~DirectReads() {
  for (OneStep& step : steps_) {
    if (step.active) EndStep(step, ReadStatus::kFlushed);
    if (step.pass_open) passes_.Exit(step.pass);
  }
}

// The best one that can land in the device.
const Route* DirectReads::RouteOf(const Routes& routes, ShardIndex shard) const {
  for (const Route& route : routes.Candidates(shard)) {
    if (queues_[route.fabric].queue != nullptr) return &route;
  }
  return nullptr;
}

StepReads::Started DirectReads::Submit(const Step& step, Ticket* ticket) {
  std::uint64_t rows = 0;
  for (const StepLayer& layer : step.layers) {
    const ReadPart& part = layer.rows;
    rows += std::uint64_t{part.runs} * part.run_rows;
    if (part.row_status == nullptr || part.row_stride < stride_ || part.runs == 0 ||
        part.run_rows == 0 || part.id_kind == ReadPart::IdKind::kRowId)
      return Started::kRefused;
    const std::size_t last =
        (part.runs - 1) * part.run_stride + (part.run_rows - 1) * part.row_stride + stride_;
    if (part.out < options_.landing.data() ||
        part.out + last > options_.landing.data() + options_.landing.size())
      return Started::kRefused;
  }
  if (rows > options_.max_step_rows || step.layers.size() > 255) return Started::kRefused;
  const auto free =
      std::find_if(steps_.begin(), steps_.end(), [](const OneStep& one) { return !one.active; });
  if (free == steps_.end()) return Started::kBusy;
  OneStep& one = *free;
  one.active = true;
  ++one.generation;
  one.deadline = step.deadline;
  one.pass = passes_.Enter();
  one.pass_open = true;
  one.routes = options_.board->Current();
  one.row_count = one.cursor = one.in_flight = 0;
  one.layers.assign(step.layers.size(), Layer{});
  for (std::size_t i = 0; i < step.layers.size(); ++i)
    Resolve(one, static_cast<std::uint8_t>(i), step.layers[i].rows);
  *ticket = {static_cast<std::uint32_t>(free - steps_.begin()), one.generation};
  Start(one, ticket->index);
  for (Layer& layer : one.layers) {
    if (layer.open == 0) Settle(one, layer);
  }
  return Started::kStarted;
}

void DirectReads::Resolve(OneStep& step, std::uint8_t number, const ReadPart& part) {
  Layer& layer = step.layers[number];
  const ShardLayout& layout = options_.table->layout;
  layer.begin = step.row_count;
  for (std::uint32_t run = 0; run < part.runs; ++run) {
    for (std::uint32_t i = 0; i < part.run_rows; ++i) {
      const std::size_t at = run * part.run_id_stride + i;
      const std::int64_t id = part.id_kind == ReadPart::IdKind::kInt32
                                  ? static_cast<const std::int32_t*>(part.ids)[at]
                                  : static_cast<const std::int64_t*>(part.ids)[at];
      Row& row = step.rows[step.row_count];
      row = Row{};
      row.layer = number;
      row.out = part.out + run * part.run_stride + i * part.row_stride;
      row.status = part.row_status + (step.row_count - layer.begin);
      ++step.row_count;
      *row.status = ReadStatus::kOk;
      if (id < 0) continue;  // the kernel sees the id and writes zeros
      if (static_cast<std::uint64_t>(id) >= part.row_limit ||
          part.first_row + static_cast<std::uint64_t>(id) >= layout.rows()) {
        *row.status = ReadStatus::kInvalid;
        ++layer.failed;
        continue;
      }
      const ShardSlot place = layout.Locate(RowId(part.first_row + static_cast<std::uint64_t>(id)));
      row.route = RouteOf(*step.routes, place.shard);
      if (row.route == nullptr) {
        *row.status = ReadStatus::kNoReplica;
        ++layer.failed;
        continue;
      }
      row.offset = place.slot * stride_;
      layer.session_bits |= row.route->session_bit();
      ++layer.open;
    }
  }
  layer.end = step.row_count;
}

// Submits from the cursor on, until a queue pushes back.
void DirectReads::Start(OneStep& step, std::uint32_t index) {
  std::array<fabric::ReadOp, 128> ops;
  while (step.cursor < step.row_count) {
    std::size_t count = 0;
    std::uint32_t at = step.cursor;
    std::uint8_t fabric = 0;
    for (; at < step.row_count && count < ops.size(); ++at) {
      const Row& row = step.rows[at];
      if (row.route == nullptr) continue;
      if (count > 0 && row.route->fabric != fabric) break;
      fabric = row.route->fabric;
      fabric::ReadOp& op = ops[count++];
      op.region = row.route->region;
      op.offset = row.offset;
      op.length = stride_;
      op.cookie = std::uint64_t{index} << 32 | at;
      op.segments = 1;
      op.local[0] = {row.out, stride_, queues_[fabric].region.get()};
    }
    const std::size_t accepted =
        count == 0 ? 0 : queues_[fabric].queue->Submit({ops.data(), count});
    for (std::size_t i = 0; i < accepted; ++i)
      step.rows[static_cast<std::uint32_t>(ops[i].cookie)].in_flight = true;
    step.in_flight += static_cast<std::uint32_t>(accepted);
    if (accepted < count) {
      step.cursor = static_cast<std::uint32_t>(ops[accepted].cookie);
      return;
    }
    step.cursor = at;
  }
}

void DirectReads::Progress() {
  Drain();
  const Instant now = options_.clock->Now();
  for (std::uint32_t i = 0; i < steps_.size(); ++i) {
    OneStep& step = steps_[i];
    if (!step.active) continue;
    if (now >= step.deadline) {
      EndStep(step, ReadStatus::kTimedOut);
    } else {
      Start(step, i);
    }
  }
}

void DirectReads::Drain() {
  std::array<fabric::ReadCompletion, 256> completions;
  for (Queue& queue : queues_) {
    if (queue.queue == nullptr) continue;
    while (const std::size_t count = queue.queue->Poll(completions)) {
      for (std::size_t i = 0; i < count; ++i) {
        OneStep& step = steps_[completions[i].cookie >> 32];
        Ended(step, step.rows[static_cast<std::uint32_t>(completions[i].cookie)],
              completions[i].status);
      }
    }
  }
}

void DirectReads::Ended(OneStep& step, Row& row, ReadStatus status) {
  ENGRAM_CHECK(row.in_flight);
  row.in_flight = false;
  --step.in_flight;
  Layer& layer = step.layers[row.layer];
  *row.status = status;
  if (status != ReadStatus::kOk) ++layer.failed;
  if (--layer.open == 0) Settle(step, layer);
}

// Nothing of the layer is outstanding. Without valid leases every row of it may be anything.
void DirectReads::Settle(OneStep& step, Layer& layer) {
  if (layer.state != LayerState::kPending) return;
  if (layer.session_bits != 0 &&
      !step.routes->LeasesValid(layer.session_bits, options_.clock->Now())) {
    for (std::uint32_t at = layer.begin; at < layer.end; ++at) {
      if (step.rows[at].route == nullptr || *step.rows[at].status != ReadStatus::kOk) continue;
      *step.rows[at].status = ReadStatus::kExpired;
      ++layer.failed;
    }
  }
  layer.state = layer.failed > 0 ? LayerState::kFailed : LayerState::kReady;
  const bool all = std::all_of(step.layers.begin(), step.layers.end(),
                               [](const Layer& one) { return one.state != LayerState::kPending; });
  if (!all || !step.pass_open) return;
  passes_.Exit(step.pass);
  step.pass_open = false;
}

// Flushes what is in flight and fails what was not started.
void DirectReads::EndStep(OneStep& step, ReadStatus why) {
  const std::uint32_t started = step.cursor;
  step.cursor = step.row_count;
  for (std::uint32_t at = 0; at < step.row_count && step.in_flight > 0; ++at) {
    const Row& row = step.rows[at];
    if (!row.in_flight) continue;
    queues_[row.route->fabric].queue->Abandon(row.route->region.peer);
    Drain();
  }
  ENGRAM_CHECK(step.in_flight == 0);
  for (std::uint32_t at = started; at < step.row_count; ++at) {
    const Row& row = step.rows[at];
    Layer& layer = step.layers[row.layer];
    if (row.route == nullptr || layer.state != LayerState::kPending) continue;
    *row.status = why;
    ++layer.failed;
    if (--layer.open == 0) Settle(step, layer);
  }
}

LayerState DirectReads::State(Ticket ticket, std::uint32_t layer) {
  const OneStep& step = steps_[ticket.index];
  if (!step.active || step.generation != ticket.generation || layer >= step.layers.size())
    return LayerState::kUnknown;
  return step.layers[layer].state;
}

void DirectReads::Release(Ticket ticket) {
  OneStep& step = steps_[ticket.index];
  if (!step.active || step.generation != ticket.generation) return;
  EndStep(step, ReadStatus::kFlushed);
  step.active = false;
}

}  // namespace engram::client::gpu
