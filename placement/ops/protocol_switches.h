// Which rules of the election the controllers keep: all of them, always. The simulation alone
// switches one off, to prove that it would find what goes wrong without it. No setting, flag or
// environment variable reaches this struct. Thread-compatible.
#pragma once

namespace engram::placement {

struct ProtocolSwitches {
  // A leader counts its lease from when it sent the write that was stored, not from the answer.
  bool count_lease_from_request = true;
};

}  // namespace engram::placement
