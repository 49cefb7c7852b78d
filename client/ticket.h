// What a caller holds of a step that was submitted to a Prefetcher: a value, copied freely. A
// ticket of a step that was released is recognised and refused; it never names another step.
// Thread-compatible.
#pragma once

#include <cstdint>

#include "engram/ids.h"
#include "engram/read_status.h"

namespace engram::client {

struct Ticket {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // 0: no step
  explicit operator bool() const { return generation != 0; }
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

// Why rows are wanted: decode and verify steps are served before prefill.
enum class StepKind : std::uint8_t { kDecode = 0, kVerify = 1, kPrefill = 2 };

enum class SubmitStatus : std::uint8_t {
  kStarted = 0,
  kBusy,          // every ticket is in use: release one first
  kTooLarge,      // more rows, layers or columns than the options allow
  kNoAddressing,  // the table names no address function
  kBadTokens,     // a token outside the vocabulary; Prefetcher::refusal() names it
  kBadStep,       // numbers of the step do not fit each other
};

enum class LayerState : std::uint8_t {
  kPending = 0,
  kReady,      // every row was delivered or skipped
  kFailed,     // at least one row is poison
  kCancelled,  // by Cancel, before all rows were there; the missing ones are poison
  kUnknown,    // the ticket was released, or the step has no such layer
};

// The worst row of a layer that failed, for messages to people.
struct WorstRow {
  ReadStatus status = ReadStatus::kOk;  // kOk: none failed
  RowId row;                            // of the whole table
  std::uint64_t first_row = 0;          // what its id counted from, and how many ids there are
  std::uint64_t row_limit = 0;
};

}  // namespace engram::client
