#include "engram/read_status.h"

namespace engram {

std::string_view Name(ReadStatus status) {
  switch (status) {
    case ReadStatus::kOk: return "ok";
    case ReadStatus::kRefused: return "refused";
    case ReadStatus::kUnreachable: return "unreachable";
    case ReadStatus::kFlushed: return "flushed";
    case ReadStatus::kTimedOut: return "timed_out";
    case ReadStatus::kCorrupt: return "corrupt";
    case ReadStatus::kNoReplica: return "no_replica";
    case ReadStatus::kExpired: return "expired";
    case ReadStatus::kInvalid: return "invalid";
  }
  return "unknown";
}

}  // namespace engram
