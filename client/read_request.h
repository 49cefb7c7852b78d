// The insides of a RowReader: what it keeps of each row, part and request, and of each fabric's
// queue. Included by the row_*.cc files only. Thread-confined: call from the owner thread only.
//
// A row's way: kQueued -> kInFlight -> kLanded -> delivered, with kQueued again at each retry;
// kSkipped, kCopy, kCached and kFailed need no (further) read; kJoined waits for a read of another
// request and is kLanded or kQueued then, or for one of another process and is kCached or kQueued.
// `Part::open` counts the rows of a part that are kQueued, kInFlight or kJoined; a part settles
// when it reaches 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/row_reader.h"

namespace engram::client {

enum class RowState : std::uint8_t {
  kQueued,
  kInFlight,
  kLanded,
  kSkipped,
  kCopy,
  kJoined,
  kCached,
  kFailed
};

// The row is read from the pool by this request, or was.
inline bool IsRead(RowState state) {
  return state == RowState::kQueued || state == RowState::kInFlight || state == RowState::kLanded;
}

inline constexpr std::size_t kSealBatch = 48;        // FABRIC 1e
inline constexpr std::size_t kMessageBatch = 384;    // gathered while the next are prepared
inline constexpr std::uint32_t kFirstMessage = 128;  // of a request: the node is idle until then
inline constexpr std::size_t kMaxSortedGroups = 4096;
inline constexpr Duration kFirstBackoff = std::chrono::milliseconds(1);
inline constexpr unsigned kMaxBackoffShift = 5;
// For rows that another process of the host reads: as long as many rows take on a busy host. Looks
// become rarer the longer it takes: an eighth of the time since the start.
inline constexpr Duration kMostAwait = std::chrono::milliseconds(20);
inline constexpr Duration kFirstLook = std::chrono::microseconds(20);
inline constexpr int kLooksShare = 8;

struct RowReader::Row {
  RowId id;
  std::byte* out = nullptr;
  const Route* route = nullptr;  // of the request's snapshot; null once that was given back
  std::uint32_t offset = 0;      // bytes into the route's region; kCopy: position of the original
  std::uint8_t part = 0;
  RowState state = RowState::kQueued;
  ReadStatus status = ReadStatus::kOk;  // why the last attempt failed
  std::uint8_t attempts : 7 = 0;
  std::uint8_t staged : 1 = 0;  // lands in the request's scratch, not in `out`
};

struct RowReader::Part {
  std::uint32_t begin = 0, end = 0;  // positions in Request::rows
  std::uint32_t open = 0;
  std::uint32_t failed = 0;
  std::uint32_t copies = 0;
  std::uint32_t skipped = 0;
  std::uint32_t order_end = 0;                 // in Request::order, while that is as Start made it
  std::uint32_t fill_begin = 0, fill_end = 0;  // in Request::fills
  std::uint64_t session_bits = 0;
  bool hedged = false;
  ReadStatus ending = ReadStatus::kOk;  // as of a request
  ReadStatus* row_status = nullptr;
  ReadPart split;  // split_bytes > 0: where its rows go from the request's staging
  PartState state = PartState::kPending;
};

struct RowReader::Request {
  std::uint32_t slot = 0;
  std::uint64_t serial = 0;  // tells this request from others that had the slot
  std::uint32_t row_bytes = 0;
  bool active = false;
  bool any_staged = false;
  bool failed_over = false;
  ReadStatus ending = ReadStatus::kOk;  // not kOk: no more reads, fail the rest with this
  fabric::Lane lane = fabric::Lane::kUrgent;
  const Destination* destination = nullptr;
  Instant started, deadline, failover_at, retry_at;
  unsigned rounds = 0;  // of retries
  std::uint8_t last_fabric_kind = 0;

  const Routes* routes = nullptr;
  RouteVersion pass;

  std::vector<Part> parts;
  std::uint32_t part_count = 0, parts_open = 0;
  std::vector<Row> rows;
  std::uint32_t row_count = 0;
  std::uint32_t in_flight = 0;
  std::uint32_t failed = 0;
  std::vector<std::uint32_t> order;  // positions to submit, grouped
  std::uint32_t order_count = 0, cursor = 0;
  bool sends_messages = false;       // not every route is mapped
  bool in_part_order = false;        // `order` has one part after the other
  std::vector<std::uint32_t> retry;  // positions to route anew
  std::uint32_t retry_count = 0;

  // Rows of other requests that wait for rows of this one.
  struct Joined {
    std::uint64_t serial = 0;  // of the request that waits
    std::uint32_t slot = 0, position = 0;
    std::uint32_t from = 0;  // position here
    std::uint32_t rows = 0;  // 0: served
  };
  std::vector<Joined> joined;
  std::uint32_t joined_count = 0;

  // N-grams that the cache did not have, part by part.
  struct CacheMiss {
    std::uint64_t hash = 0;
    std::uint32_t position = 0, rows = 0;  // 0 rows: it is there by now
  };
  std::vector<CacheMiss> fills;
  std::uint32_t fill_count = 0;
  // Those of `fills` that another process reads, until when that is waited for, and the next look.
  std::vector<std::uint32_t> awaited;
  std::uint32_t awaited_count = 0;
  Instant await_until, look_at;

  // Where seals land, then, where a fabric needs registered memory or rows may be split, where rows
  // land.
  std::vector<std::uint64_t> scratch;
  std::unique_ptr<Destination> scratch_region;
  std::byte* staging = nullptr;

  // Rows that landed and whose seals were not checked yet.
  struct Unchecked {
    std::array<std::uint32_t, kSealBatch> positions;
    std::array<RowId, kSealBatch> ids;
    std::array<const std::byte*, kSealBatch> rows;
    std::array<std::uint64_t, kSealBatch> seals;
    std::uint32_t count = 0;
  } unchecked;
  ReadFailure failure;

  // Where the row's bytes are after it landed.
  std::byte* Landing(const Row& row) const {
    if (!row.staged) return row.out;
    return staging + static_cast<std::size_t>(&row - rows.data()) * row_bytes;
  }
};

// A late row that is being read from another replica, too. It holds a pass of its own, because its
// request may be over before it.
struct RowReader::HedgeRow {
  enum class State : std::uint8_t { kFree, kReading, kWon } state = State::kFree;
  std::uint8_t attempts = 0;  // of the row when it was hedged
  std::uint8_t late_fabric = 0;
  bool submitted = false;
  std::uint32_t slot = 0, position = 0;
  std::uint32_t offset = 0;
  std::uint64_t serial = 0;
  RowId id;
  fabric::PeerId late_peer;
  Instant deadline;
  RouteVersion pass;
  const Routes* routes = nullptr;
  const Route* route = nullptr;
};

struct RowReader::Queue {
  fabric::Fabric* fabric = nullptr;
  std::unique_ptr<fabric::ReadQueue> queue;
  FabricKind kind = FabricKind::kLoopback;
  bool needs_registration = false;
  bool completes_at_once = false;  // the copy is done when Submit returns
  bool reads_now = false;          // mapped: by ReadNow
  std::uint8_t index = 0;
  std::size_t batch = 0;
  std::uint32_t outstanding = 0;
  // Everything that is the same for all rows is filled in once.
  std::vector<fabric::ReadOp> ops;
  fabric::Lane lane = fabric::Lane::kUrgent;  // of the operations as they stand
  std::vector<fabric::ReadCompletion> completions;
  // What ReadNow is told of the next rows; instead of `ops`.
  std::vector<std::uint64_t> from;
  std::vector<std::byte*> to;
};

}  // namespace engram::client
