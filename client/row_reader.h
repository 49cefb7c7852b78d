// Reads batches of rows of one table into the caller's memory: finds the routes, submits the reads,
// checks seals and leases, and reads failed rows again elsewhere, all within the batch's deadline.
//
// A request is made of parts, usually one per layer; each part becomes ready by itself. Several
// requests may be outstanding, one per slot. What the caller is promised for each part:
//   - it is reported only when no operation that targets its memory is outstanding (no late
//     landing), and only if the leases it was read under were still valid after the last one;
//   - delivered rows passed their seal; skipped rows are zeros; failed rows are the dtype's poison
//     pattern and are marked, never silently zero.
// Where reads are plain loads (mapped), Start reads the first part and each Progress one more, so
// that a part that is needed early does not wait for the others.
// Until a part is reported its memory holds anything. After Open nothing here allocates, locks or
// logs. Thread-confined: call from the owner thread only.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cache/row_cache.h"
#include "client/destination.h"
#include "client/protocol_switches.h"
#include "client/quiescence.h"
#include "client/read_counters.h"
#include "client/read_heat.h"
#include "client/route_board.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/sealed_row.h"
#include "engram/shard_layout.h"
#include "engram/table_spec.h"
#include "fabric/fabric.h"

namespace engram::client {

// What a reader knows of its table. Immutable: Thread-safe.
struct ReadTable {
  ReadTable(const TableUid& uid, const TableSpec& spec, const TableOptions& options);
  TableUid uid;
  ShardLayout layout;
  RowSealer sealer;
  std::vector<std::byte> poison;  // one row
};

// Rows of one layer (or any other set that becomes ready together). Positions are numbered run by
// run: position = run * run_rows + index. Ids are copied at Start; the output memory must stay
// until the part is reported.
struct ReadPart {
  enum class IdKind : std::uint8_t { kRowId, kInt32, kInt64 };

  const void* ids = nullptr;
  IdKind id_kind = IdKind::kRowId;  // kInt32, kInt64: negative = skip
  std::uint32_t runs = 1;
  std::uint32_t run_rows = 0;
  std::size_t run_id_stride = 0;  // ids from one run to the next; ignored for one run
  std::size_t id_stride = 1;      // ids from one row of a run to the next
  // Ids are [0, row_limit) and first_row is added: 0 and rows() for whole-table ids, LayerFirstRow
  // and LayerRows for ids of a layer's own table.
  std::uint64_t first_row = 0;
  std::uint64_t row_limit = 0;
  // So many rows in a row belong to one n-gram and repeat together: duplicates are looked for once
  // for all of them.
  std::uint32_t ngram_rows = 1;

  std::byte* out = nullptr;
  std::size_t row_stride = 0;        // bytes from one row to the next; at least the row's bytes
  std::size_t run_stride = 0;        // bytes from one run to the next; ignored for one run
  ReadStatus* row_status = nullptr;  // null, or one per position, written when the part is reported

  // Split rows: the first `split_bytes` of each row land at `out`, the others at `rest`, which has
  // strides of its own. 0: rows land packed.
  std::uint32_t split_bytes = 0;
  std::byte* rest = nullptr;
  std::size_t rest_row_stride = 0;
  std::size_t rest_run_stride = 0;
};

struct ReadRequest {
  std::span<const ReadPart> parts;
  Instant deadline;
  fabric::Lane lane = fabric::Lane::kUrgent;
  // Covers every part's output: rows land in place on every fabric. Null: fabrics that need
  // registered memory land in the reader's own, and rows are copied from there.
  const Destination* destination = nullptr;
  // When the first of its rows are needed: rows that another process of the host reads are not
  // waited for much longer than half the time until then.
  Instant needed_by = Instant::max();
};

enum class PartState : std::uint8_t {
  kPending = 0,
  kReady,   // every row was delivered or skipped
  kFailed,  // at least one row is poison
};

// The first thing that went wrong in a request, for a message to people.
struct ReadFailure {
  ReadStatus status = ReadStatus::kOk;
  RowId row;
  NodeId node;  // empty when no node was involved
};

class RowReader {
 public:
  struct Options {
    std::shared_ptr<const ReadTable> table;
    RouteBoard* board = nullptr;           // outlives the reader
    std::vector<fabric::Fabric*> fabrics;  // outlive the reader; Route::fabric indexes them
    const Clock* clock = &SystemClock::Get();
    fabric::WaitMode wait;
    std::uint32_t max_rows = 4096;  // of one request, skipped rows included
    std::uint32_t max_parts = 64;   // of one request, at most 255
    std::uint32_t slots = 4;        // requests outstanding
    std::uint32_t queue_depth = 8192;
    std::uint32_t attempts = 8;  // of one row, at least 1
    // Parts may be split: costs a packed copy of every row in flight and a copy at delivery.
    bool split_rows = false;
    // On fabrics that send messages, equal rows of a part are read once, and rows that another
    // request has under way are taken from it.
    bool share_duplicates = true;
    // On fabrics that send messages, rows are looked up here before they are read, and kept here
    // once they were delivered. Null: none. A private cache belongs to one reader.
    std::shared_ptr<RowCache> cache;
    std::uint32_t hedge_rows =
        0;  // hedged rows under way at once; their memory is the reader's own
    ProtocolSwitches switches;
    std::shared_ptr<ReadCounters> counters;  // null: the reader's own
    std::shared_ptr<ReadHeat> heat;          // null: what is read is not counted by shard
  };

  using Slot = std::int32_t;
  static constexpr Slot kNoSlot = -1;    // every slot is in use: collect one first
  static constexpr Slot kTooLarge = -2;  // more than Options allow: rows, parts, or a split part

  // InvalidArgument names the option; the fabrics' errors say which fabric.
  static absl::StatusOr<std::unique_ptr<RowReader>> Open(const Options& options);
  ~RowReader();  // Ends what is outstanding.
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // Starts a request and returns its slot, kNoSlot or kTooLarge.
  Slot Start(const ReadRequest& request);
  // Drives every outstanding request. Never blocks, except to flush the reads of a request whose
  // deadline has passed.
  void Progress();
  // REQUIRES: `slot` was returned by Start and not collected yet.
  bool Done(Slot slot) const;
  PartState State(Slot slot, std::uint32_t part) const;
  // Progress() until the slot is done or `until` passes: spins, then sleeps. Returns Done(slot).
  bool Wait(Slot slot, Instant until);
  // As Wait, for one part.
  bool WaitPart(Slot slot, std::uint32_t part, Instant until);
  // Ends the request as if its deadline were now; its unread rows fail with kFlushed. The slot is
  // done when it returns.
  void Cancel(Slot slot);
  // As Cancel, for one part; rows of others that the flush ended are read again.
  void CancelPart(Slot slot, std::uint32_t part);
  // For a part that is late: asks another replica, once a part, for every row that is in flight and
  // has one. The copy lands in the reader's own memory and replaces the row only after the first
  // read was flushed; a first read that completes is taken instead. Returns how many rows.
  std::uint32_t Hedge(Slot slot, std::uint32_t part);
  // Rows of the part that are not there yet.
  std::uint32_t Missing(Slot slot, std::uint32_t part) const;
  // What went wrong first; status kOk when nothing did so far.
  const ReadFailure& Failure(Slot slot) const;
  // Frees the slot; returns how many rows failed. REQUIRES: Done(slot).
  std::uint32_t Collect(Slot slot);

  // Whether rows are looked up in the cache now: there is one, and not every route is mapped.
  bool UsesCache();
  // As RowCache::Pin.
  bool PinCached(const CacheFill& unit);

  // To sleep without this object: what to wait for, and until when at most.
  struct Nap {
    std::array<pollfd, 256> fds;
    std::uint32_t count = 0;
    Instant until;
    // Until one of the descriptors is readable. REQUIRES: now < until.
    void Sleep(Instant now);
  };
  // False when something can be done now. `nap->until` is set by the caller and brought forward to
  // the reader's next timer.
  bool Arm(Instant now, Nap* nap);
  // Hedges are under way; they may outlive their requests, and Progress ends them.
  bool hedging() const { return hedges_reading_ + hedges_won_ > 0; }
  // Of all queues, since Open: tells whether something happened.
  std::uint64_t completions() const { return completions_; }

  const ReadCounters& counters() const { return *options_.counters; }
  ReadCounters& counters() { return *options_.counters; }
  const ReadTable& table() const { return *options_.table; }
  const Options& options() const { return options_; }

 private:
  struct Queue;     // one fabric's queue and its prepared operations
  struct Request;   // what one slot holds
  struct Row;       // one position of a request
  struct Part;      // one part of a request
  struct HedgeRow;  // one row that is read a second time
  struct Lookups;   // n-grams that are looked up in the cache together

  explicit RowReader(const Options& options);
  absl::Status OpenQueues();
  absl::Status OpenSlots();
  template <class Do>
  void ForActive(Do one);
  void KeepTime(Request& request, Instant now);

  // Ids -> rows with routes (row_resolve.cc).
  void Resolve(Request& request, Part& part, const ReadPart& from);
  void ResolveAndRead(Request& request, Part& part, const ReadPart& from);
  void ResolveRows(Request& request, Part& part, const ReadPart& from, std::uint32_t run,
                   std::uint32_t first, std::uint32_t count);
  template <class Id>
  void ResolveRun(Request& request, Part& part, const Id* ids, std::uint32_t count,
                  const ReadPart& from, std::byte* out);
  void Choose(Request& request, Part& part, std::uint32_t ngram_rows, std::uint32_t order_begin);
  void CountHeat(const Request& request, const Part& part, std::uint32_t ngram_rows);
  void SortByGroup(Request& request);
  void Reroute(Request& request, Instant now);
  void Repin(Request& request, Instant now);
  void AwaitReplica(Request& request, Row& row, std::uint32_t position);

  // Rows that are read only once (row_share.cc).
  void BeginSharing();
  void ShareDuplicates(Request& request, Part& part, std::uint32_t ngram_rows,
                       std::uint32_t order_begin);
  std::uint32_t UnitAt(const Request& request, const Part& part, std::uint32_t ngram_rows,
                       std::uint32_t at) const;
  bool CopyInPart(Request& request, std::uint32_t position, std::uint32_t rows);
  bool Join(Request& request, std::uint32_t position, std::uint32_t rows);
  void DeliverJoins(Request& request, Part& part);
  void LeaveJoins(Request& request, Part& part);

  // Rows that need not be read, and rows that will not be again (row_cached.cc).
  void TakeCached(Request& request, Part& part, std::uint32_t ngram_rows,
                  std::uint32_t order_begin);
  std::uint32_t LookUp(Request& request, Part& part, std::uint32_t kept);
  void LookAgain(Request& request, Instant now);
  std::uint32_t TakeAwaited(Request& request, std::span<const std::uint32_t> fills, bool patient,
                            std::uint32_t kept);
  void FillCache(Request& request, Part& part);
  void FillLanded(Request& request, Instant now);
  void FillUnits(Request& request, const Part& part);
  void CountCache();

  // Rows -> fabric -> rows (row_transfer.cc).
  void Submit(Request& request);
  std::size_t Prepare(Request& request, Queue& queue, std::uint16_t group);
  void ReadNow(Request& request, Queue& queue, std::uint16_t group);
  std::size_t PrepareNow(Request& request, Queue& queue, std::uint16_t group);
  void Drain(Queue& queue);
  std::size_t Landed(std::span<const fabric::ReadCompletion> completions, FabricKind kind);
  void Failed(Request& request, std::uint32_t position, ReadStatus status);
  static bool MayComeBack(const Request& request, ReadStatus status);
  void GiveUp(Request& request, Row& row, ReadStatus status);
  void CheckSeals(Request& request);
  void SetLane(Queue& queue, fabric::Lane lane);
  void FlushPeers(Request& request, bool only_replicated);
  void Flush(Row& row);
  void Drop(Request& request, Part& part);
  void End(Request& request, ReadStatus why);

  // Second reads of late rows (row_hedge.cc).
  absl::Status OpenHedges();
  bool ChooseHedge(const Request& request, std::uint32_t position, HedgeRow* hedge);
  std::uint32_t SubmitHedges(Queue& queue, std::uint32_t slot);
  void HedgeEnded(std::uint32_t index, ReadStatus status);
  bool IsWanted(const HedgeRow& hedge) const;
  bool TakeHedge(Request& request, std::uint32_t position);
  void FlushLosers();
  void ExpireHedges(Instant now);
  void Free(HedgeRow& hedge);
  void CloseHedges();

  // Rows -> caller (row_deliver.cc).
  void Settle(Request& request, Part& part);
  void ReadAgain(Request& request, Part& part);
  void Deliver(Request& request, Part& part, Instant now);
  void DeliverCopies(Request& request, Part& part);
  void DeliverStaged(Request& request, Part& part);
  void DeliverFailures(Request& request, Part& part);
  void DeliverSplit(Request& request, Part& part);
  void Finish(Request& request, Instant now);
  static ReadStatus Ending(const Request& request, const Part& part);
  template <class Ready>
  bool WaitFor(Ready ready, Instant until);

  Options options_;
  const std::uint32_t row_bytes_;
  const bool sealed_;
  bool needs_registration_ = false;
  QuiescenceReader passes_;
  std::vector<std::unique_ptr<Queue>> queues_;      // one per fabric of the options
  std::vector<std::unique_ptr<Request>> requests_;  // one per slot
  std::uint32_t active_ = 0;                        // of them, not collected yet
  std::vector<std::uint32_t> group_counts_;
  std::vector<std::uint32_t> sorted_;
  std::vector<std::uint64_t> seen_;  // duplicates: generation << 32 | position
  std::uint32_t seen_generation_ = 0;
  struct Flying {  // where the read of an n-gram is under way, if it still is
    std::uint64_t serial = 0;
    std::uint32_t slot = 0, position = 0;
  };
  std::vector<Flying> flying_;  // by hash; a newer one replaces an older one
  std::uint64_t completions_ = 0;
  std::uint64_t last_serial_ = 0;  // of requests

  std::unique_ptr<Lookups> lookups_;                     // null without a cache
  std::uint64_t cache_bytes_ = 0, cache_evictions_ = 0;  // that were counted

  std::vector<HedgeRow> hedges_;
  std::vector<std::uint32_t> free_hedges_;  // indices into hedges_
  std::uint32_t hedges_reading_ = 0, hedges_won_ = 0;
  std::vector<fabric::ReadOp> hedge_ops_;
  std::vector<std::byte> hedge_memory_;  // rows, then seals
  std::unique_ptr<Destination> hedge_region_;
  ReadCounters& counters_;
};

}  // namespace engram::client
