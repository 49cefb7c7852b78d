// The closed set of outcomes of one row read. One byte, because it is carried per completion.
#pragma once

#include <cstdint>
#include <string_view>

namespace engram {

enum class ReadStatus : std::uint8_t {
  kOk = 0,
  kRefused,      // the key or range is not (or no longer) granted: refresh grants, retry once
  kUnreachable,  // the peer is gone or its incarnation changed: use another replica
  kFlushed,      // the caller abandoned the peer or closed the queue while the read was in flight
  kTimedOut,     // the deadline passed first
  kCorrupt,      // the bytes failed their seal: replica suspect, read elsewhere
  kNoReplica,    // no node serves the shard right now
  kExpired,      // the read lease ran out before the bytes could be delivered
  kInvalid,      // the row does not exist in this table
};

std::string_view Name(ReadStatus status);

}  // namespace engram
