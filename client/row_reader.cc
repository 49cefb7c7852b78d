#include "client/row_reader.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/read_request.h"
#include "client/row_lookups.h"
#include "engram/poison.h"

namespace engram::client {

ReadTable::ReadTable(const TableUid& table_uid, const TableSpec& spec, const TableOptions& options)
    : uid(table_uid),
      layout(spec, options),
      sealer(table_uid, spec.RowBytes()),
      poison(PoisonRow(spec)) {}

absl::StatusOr<std::unique_ptr<RowReader>> RowReader::Open(const Options& options) {
  if (options.table == nullptr || options.board == nullptr)
    return absl::InvalidArgumentError("a row reader needs a table and a route board");
  if (options.max_rows == 0 || options.max_rows > (1u << 30))
    return absl::InvalidArgumentError(
        absl::StrCat("max_rows is ", options.max_rows, "; allowed are 1 to 2^30"));
  if (options.max_parts == 0 || options.max_parts > 255)
    return absl::InvalidArgumentError(
        absl::StrCat("max_parts is ", options.max_parts, "; allowed are 1 to 255"));
  if (options.slots == 0 || options.slots > 1024)
    return absl::InvalidArgumentError(
        absl::StrCat("slots is ", options.slots, "; allowed are 1 to 1024"));
  if (options.attempts == 0 || options.attempts > 100)
    return absl::InvalidArgumentError(
        absl::StrCat("attempts is ", options.attempts, "; allowed are 1 to 100"));
  if (options.fabrics.size() > 255)
    return absl::InvalidArgumentError("a row reader takes at most 255 fabrics");
  Options own = options;
  if (own.counters == nullptr) own.counters = std::make_shared<ReadCounters>();
  std::unique_ptr<RowReader> reader(new RowReader(own));
  if (absl::Status status = reader->OpenQueues(); !status.ok()) return status;
  if (absl::Status status = reader->OpenSlots(); !status.ok()) return status;
  if (absl::Status status = reader->OpenHedges(); !status.ok()) return status;
  return reader;
}

RowReader::RowReader(const Options& options)
    : options_(options),
      row_bytes_(options.table->layout.row_bytes()),
      sealed_(options.table->layout.seal() != SealKind::kNone),
      passes_(options.board->quiescence()),
      group_counts_(kMaxSortedGroups + 1),
      sorted_(options.max_rows),
      counters_(*options.counters) {
  if (options.cache != nullptr) lookups_ = std::make_unique<Lookups>(options.cache->unit_rows());
  if (!options.share_duplicates) return;
  seen_.resize(std::bit_ceil(std::size_t{options.max_rows} * 2));
  if (options.slots > 1) flying_.resize(seen_.size());
}

RowReader::~RowReader() {
  // Rows that are still being read would land in memory that the caller takes back now.
  for (auto& request : requests_) {
    if (request->active && request->parts_open > 0) End(*request, ReadStatus::kFlushed);
  }
  for (auto& queue : queues_) queue->queue->Close();
  CloseHedges();
}

absl::Status RowReader::OpenQueues() {
  for (fabric::Fabric* fabric : options_.fabrics) {
    auto opened = fabric->OpenQueue({options_.queue_depth, options_.wait});
    if (!opened.ok())
      return absl::Status(opened.status().code(),
                          absl::StrCat("opening a read queue on fabric ", fabric->info().provider,
                                       ": ", opened.status().message()));
    auto queue = std::make_unique<Queue>();
    queue->fabric = fabric;
    queue->queue = *std::move(opened);
    queue->kind = fabric->info().kind;
    queue->needs_registration = fabric->info().needs_registration;
    queue->index = static_cast<std::uint8_t>(queues_.size());
    queue->completes_at_once =
        queue->kind == FabricKind::kMapped || queue->kind == FabricKind::kLoopback;
    queue->batch = kMessageBatch;
    queue->reads_now = queue->queue->ReadNow({});
    queue->from.resize(queue->batch);
    queue->to.resize(queue->batch);
    queue->ops.resize(queue->batch);
    queue->completions.resize(queue->batch);
    for (fabric::ReadOp& op : queue->ops) {
      op.length = options_.table->layout.stride();
      op.segments = sealed_ ? 2 : 1;
      op.local[0].bytes = row_bytes_;
      if (sealed_) op.local[1].bytes = kSealBytes;
    }
    needs_registration_ |= queue->needs_registration;
    queues_.push_back(std::move(queue));
  }
  return absl::OkStatus();
}

absl::Status RowReader::OpenSlots() {
  const std::size_t rows = options_.max_rows;
  for (std::uint32_t slot = 0; slot < options_.slots; ++slot) {
    auto request = std::make_unique<Request>();
    request->slot = slot;
    request->row_bytes = row_bytes_;
    request->parts.resize(options_.max_parts);
    request->rows.resize(rows);
    request->order.resize(rows);
    request->retry.resize(rows);
    if (!flying_.empty()) request->joined.resize(rows);
    if (options_.cache != nullptr) {
      request->fills.resize(rows);
      request->awaited.resize(rows);
    }
    request->failure.node.name.reserve(255);
    const bool stages = needs_registration_ || options_.split_rows;
    const std::size_t staged = stages ? rows * row_bytes_ : 0;
    request->scratch.resize(rows + (staged + 7) / 8);
    request->staging = reinterpret_cast<std::byte*>(request->scratch.data() + rows);
    if (needs_registration_) {
      auto region = Destination::Register(options_.fabrics,
                                          std::as_writable_bytes(std::span(request->scratch)));
      if (!region.ok()) return region.status();
      request->scratch_region = *std::move(region);
    }
    requests_.push_back(std::move(request));
  }
  return absl::OkStatus();
}

RowReader::Slot RowReader::Start(const ReadRequest& from) {
  std::uint64_t rows = 0;
  for (const ReadPart& part : from.parts) {
    rows += std::uint64_t{part.runs} * part.run_rows;
    if (part.split_bytes > 0 && !options_.split_rows) return kTooLarge;
  }
  if (rows > options_.max_rows || from.parts.size() > options_.max_parts) return kTooLarge;
  const auto free = std::find_if(requests_.begin(), requests_.end(),
                                 [](const auto& request) { return !request->active; });
  if (free == requests_.end()) return kNoSlot;

  Request& request = **free;
  request.active = true;
  ++active_;
  request.serial = ++last_serial_;
  request.any_staged = request.failed_over = false;
  request.ending = ReadStatus::kOk;
  request.lane = from.lane;
  request.destination = from.destination;
  request.started = options_.clock->Now();
  request.deadline = from.deadline;
  request.failover_at = request.started + (from.deadline - request.started) / 2;
  request.retry_at = request.started;
  request.rounds = 0;
  request.part_count = request.parts_open = static_cast<std::uint32_t>(from.parts.size());
  request.row_count = request.in_flight = request.failed = 0;
  request.order_count = request.cursor = request.retry_count = request.unchecked.count = 0;
  request.joined_count = request.fill_count = request.awaited_count = 0;
  const Duration left = std::min(from.deadline, from.needed_by) - request.started;
  request.await_until = request.started + std::min(kMostAwait, left / 2);
  request.look_at = request.started + kFirstLook;
  request.failure.status = ReadStatus::kOk;
  request.failure.node.name.clear();
  request.pass = passes_.Enter();
  request.routes = options_.board->Current();
  const auto groups = request.routes->groups();
  request.sends_messages = std::any_of(groups.begin(), groups.end(), [](const RouteGroup& group) {
    return group.path_class != PathClass::kMapped;
  });

  request.in_part_order = true;
  // Where reads are plain loads, the first part is there before the next one's rows are looked up.
  const bool first_alone = !request.sends_messages && groups.size() == 1 && request.part_count > 1;
  for (std::uint32_t i = 0; i < request.part_count; ++i) {
    request.parts[i] = Part();
    Resolve(request, request.parts[i], from.parts[i]);
    request.parts[i].order_end = request.order_count;
    if (i == 0 && first_alone) Submit(request);
  }
  SortByGroup(request);
  for (std::uint32_t i = 0; i < request.part_count; ++i) {
    if (request.parts[i].open == 0) Settle(request, request.parts[i]);
  }
  if (request.part_count == 0) Finish(request, request.started);
  if (!first_alone) Submit(request);
  return static_cast<Slot>(request.slot);
}

void RowReader::Progress() {
  for (auto& queue : queues_) {
    if (queue->outstanding > 0) Drain(*queue);
  }
  if (hedges_won_ > 0) FlushLosers();
  bool waiting = hedges_reading_ > 0;
  ForActive([&](Request& request) {
    if (request.parts_open == 0) return;
    if (request.cursor < request.order_count) Submit(request);
    waiting |= request.parts_open > 0;
  });
  if (!waiting) return;
  const Instant now = options_.clock->Now();
  if (hedges_reading_ > 0) ExpireHedges(now);
  ForActive([&](Request& request) {
    if (request.parts_open > 0) KeepTime(request, now);
  });
}

// Most slots are free most of the time, and each is a memory access of its own.
template <class Do>
void RowReader::ForActive(Do one) {
  std::uint32_t left = active_;
  for (auto request = requests_.begin(); left > 0; ++request) {
    if (!(*request)->active) continue;
    --left;
    one(**request);
  }
}

// What is due: its end, leaving late nodes, the next try.
void RowReader::KeepTime(Request& request, Instant now) {
  if (now >= request.deadline) return End(request, ReadStatus::kTimedOut);
  if (!request.failed_over && now >= request.failover_at && request.in_flight > 0) {
    request.failed_over = true;
    FlushPeers(request, /*only_replicated=*/true);
  }
  if (request.awaited_count > 0 && now >= request.look_at) LookAgain(request, now);
  if (request.retry_count > 0 && request.cursor == request.order_count && now >= request.retry_at)
    Reroute(request, now);
}

bool RowReader::Done(Slot slot) const { return requests_[slot]->parts_open == 0; }

PartState RowReader::State(Slot slot, std::uint32_t part) const {
  return requests_[slot]->parts[part].state;
}

template <class Ready>
bool RowReader::WaitFor(Ready ready, Instant until) {
  if (ready()) return true;
  Progress();
  if (ready()) return true;
  Instant now = options_.clock->Now();
  Instant spin_from = now;
  std::uint64_t seen = completions_;
  while (now < until) {
    Progress();
    if (ready()) return true;
    now = options_.clock->Now();
    if (completions_ != seen) {
      seen = completions_;
      spin_from = now;
    } else if (now - spin_from >= options_.wait.spin) {
      Nap nap;
      nap.until = until;
      if (Arm(now, &nap)) nap.Sleep(now);
      now = options_.clock->Now();
    }
  }
  Progress();
  return ready();
}

bool RowReader::Wait(Slot slot, Instant until) {
  return WaitFor([&] { return Done(slot); }, until);
}

bool RowReader::WaitPart(Slot slot, std::uint32_t part, Instant until) {
  return WaitFor([&] { return State(slot, part) != PartState::kPending; }, until);
}

bool RowReader::Arm(Instant now, Nap* nap) {
  Instant& until = nap->until;
  nap->count = 0;
  for (auto& queue : queues_) {
    if (queue->outstanding == 0) continue;
    const int fd = queue->queue->ArmWait();
    if (fd < 0) return false;
    nap->fds[nap->count++] = {fd, POLLIN, 0};
  }
  for (const HedgeRow& hedge : hedges_) {
    if (hedge.state == HedgeRow::State::kReading) until = std::min(until, hedge.deadline);
  }
  for (auto& request : requests_) {
    if (!request->active || request->parts_open == 0) continue;
    if (request->cursor < request->order_count && request->in_flight == 0) return false;
    until = std::min(until, request->deadline);
    if (!request->failed_over && request->in_flight > 0)
      until = std::min(until, request->failover_at);
    if (request->awaited_count > 0) until = std::min(until, request->look_at);
    if (request->retry_count > 0 && request->cursor == request->order_count)
      until = std::min(until, std::max(request->retry_at, now + kFirstBackoff));
  }
  return until > now;
}

void RowReader::Nap::Sleep(Instant now) {
  const Duration left = until - now;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>((left - seconds).count())};
  ppoll(fds.data(), count, &timeout, nullptr);
}

void RowReader::Cancel(Slot slot) {
  if (!Done(slot)) End(*requests_[slot], ReadStatus::kFlushed);
}

void RowReader::CancelPart(Slot slot, std::uint32_t index) {
  Request& request = *requests_[slot];
  Part& part = request.parts[index];
  if (part.state != PartState::kPending) return;
  part.ending = ReadStatus::kFlushed;
  for (std::uint32_t at = part.begin; at < part.end && part.open > 0; ++at) {
    while (request.rows[at].state == RowState::kInFlight) Flush(request.rows[at]);
  }
  CheckSeals(request);
  if (part.state == PartState::kPending) Drop(request, part);
}

std::uint32_t RowReader::Missing(Slot slot, std::uint32_t index) const {
  const Request& request = *requests_[slot];
  const Part& part = request.parts[index];
  if (part.state != PartState::kPending) return 0;
  const auto begin = request.rows.begin();
  return static_cast<std::uint32_t>(
      std::count_if(begin + part.begin, begin + part.end, [](const Row& row) {
        return row.state == RowState::kQueued || row.state == RowState::kInFlight ||
               row.state == RowState::kCopy || row.state == RowState::kJoined;
      }));
}

const ReadFailure& RowReader::Failure(Slot slot) const { return requests_[slot]->failure; }

std::uint32_t RowReader::Collect(Slot slot) {
  Request& request = *requests_[slot];
  if (!request.active || request.parts_open != 0) std::abort();
  request.active = false;
  --active_;
  return request.failed;
}

}  // namespace engram::client
