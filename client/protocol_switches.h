// Which rules of the lease protocol are in force (ARCHITECTURE section 4): all of them, always. The
// simulation alone switches one off, to prove that it would find the wrong row. No setting, flag or
// environment variable reaches this struct. Thread-compatible.
#pragma once

namespace engram::client {

struct ProtocolSwitches {
  // Rule 1: grants come in numbered revisions; one that is missing ends the session.
  bool refuse_missing_revisions = true;
  // Rule 2: a lease is counted from when its request was sent, not from when the answer came.
  bool count_lease_from_request = true;
  // Rule 3 (a): a withdrawal is acknowledged only when no read of it can start any more.
  bool change_routes_before_ack = true;
  // Rule 3 (b): a withdrawal is acknowledged only after every read started under it has ended.
  bool wait_for_started_reads = true;
  // Rule 4: a batch is delivered only if its lease is valid after its last completion.
  bool check_lease_after_completion = true;
};

}  // namespace engram::client
