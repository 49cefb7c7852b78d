// Which rules of the lease protocol a node keeps (ARCHITECTURE section 4): all of them, always. The
// simulation alone switches one off, to prove that it would find what goes wrong without it. No
// setting, flag or environment variable reaches this struct. Thread-compatible.
#pragma once

namespace engram::poolserver {

struct ProtocolSwitches {
  // Rule 3: a replica is hidden and its memory reused only when no session can read it any more.
  bool wait_for_sessions = true;
  // Rule 3 (c): the lease of a session that has not applied a withdrawal is not extended.
  bool hold_lease_while_unapplied = true;
  // Rule 3 (c): a session whose stream broke keeps its lease to the end.
  bool keep_lease_of_broken_session = true;
  // Rule 3: reads of the node's own count as readers; the scrubber's and those of moves always do.
  bool count_own_reads = true;
  // Rule 8: what carries a fencing token older than one seen before is refused.
  bool refuse_older_tokens = true;
  // Rule 8: a command that is meant for another incarnation is refused.
  bool refuse_other_incarnations = true;
  // Rule 8: a process that hears that it was replaced, or refused, exits.
  bool exit_when_replaced = true;
  // What a client knew the keys of is registered under new ones when the client is revoked.
  bool renew_keys_of_revoked = true;
};

}  // namespace engram::poolserver
