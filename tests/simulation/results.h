// What a run counts. A plain struct of numbers, in the order of kCounts. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>

namespace engram::simulation {

struct Results {
  std::uint64_t requests = 0;
  std::uint64_t rows_right = 0;
  std::uint64_t rows_wrong = 0;
  std::uint64_t rows_failed = 0;
  std::uint64_t tables_lost = 0;  // that served once, were not deleted, and do not serve in the end
  std::uint64_t longest_pause_ms = 0;  // of a client that runs, between two steps read whole
  std::uint64_t retired = 0;           // replicas whose memory was reused
  std::uint64_t hedges = 0;            // rows delivered from a second read
  std::uint64_t joined = 0;            // rows delivered from another request's read
  std::uint64_t cached = 0;            // rows delivered from a client's cache
  std::uint64_t pulled = 0;            // replicas that came from another node
  std::uint64_t moved = 0;             // moves that were finished, repairs included
  std::uint64_t repaired = 0;
  std::uint64_t drained = 0;         // nodes that were empty after a drain
  std::uint64_t flipped = 0;         // bits
  std::uint64_t withdrawn = 0;       // replicas that a scrubber found to be wrong
  std::uint64_t takeovers = 0;       // of the store, by another controller
  std::uint64_t store_troubles = 0;  // transactions that failed or whose answer was lost
  std::uint64_t rebalanced = 0;      // moves that the planner wanted for load
  std::uint64_t changed_tier = 0;    // replicas that serve from another tier of their node since
  std::uint64_t hot_copies = 0;      // most copies at one time beyond those that tables ask for
  std::uint64_t aliases_set = 0;
  std::uint64_t replaced = 0;       // processes of nodes that had to exit for another one
  std::uint64_t updates_lost = 0;   // of grants, on their way to a client
  std::uint64_t late_commands = 0;  // that reached another process of their node
  // Replicas that a node was made to retire although the leader's map says that they serve.
  std::uint64_t retired_while_mapped = 0;
  std::uint64_t revoked = 0;     // clients
  std::uint64_t keys_taken = 0;  // that revoked clients knew, looked for after lease and margin
  std::uint64_t keys_left = 0;   // and found

  Results& operator+=(const Results& other);
};

struct NamedCount {
  const char* name;
  std::uint64_t Results::*count;
};
inline constexpr NamedCount kCounts[] = {
    {"steps", &Results::requests},
    {"rows_right", &Results::rows_right},
    {"wrong_rows", &Results::rows_wrong},
    {"failed_reads", &Results::rows_failed},
    {"tables_lost", &Results::tables_lost},
    {"longest_pause_ms", &Results::longest_pause_ms},
    {"replicas_retired", &Results::retired},
    {"rows_hedged", &Results::hedges},
    {"rows_joined", &Results::joined},
    {"rows_cached", &Results::cached},
    {"replicas_pulled", &Results::pulled},
    {"moves", &Results::moved},
    {"repairs", &Results::repaired},
    {"drains", &Results::drained},
    {"bits_flipped", &Results::flipped},
    {"replicas_withdrawn", &Results::withdrawn},
    {"takeovers", &Results::takeovers},
    {"store_troubles", &Results::store_troubles},
    {"rebalancing_moves", &Results::rebalanced},
    {"tier_moves", &Results::changed_tier},
    {"hot_copies", &Results::hot_copies},
    {"aliases_set", &Results::aliases_set},
    {"processes_replaced", &Results::replaced},
    {"updates_lost", &Results::updates_lost},
    {"late_commands", &Results::late_commands},
    {"retired_while_mapped", &Results::retired_while_mapped},
    {"clients_revoked", &Results::revoked},
    {"keys_of_revoked", &Results::keys_taken},
    {"keys_left_to_revoked", &Results::keys_left},
};

inline Results& Results::operator+=(const Results& other) {
  const std::uint64_t pause = std::max(longest_pause_ms, other.longest_pause_ms);
  const std::uint64_t copies = std::max(hot_copies, other.hot_copies);
  for (const NamedCount& one : kCounts) this->*one.count += other.*one.count;
  longest_pause_ms = pause;
  hot_copies = copies;
  return *this;
}

}  // namespace engram::simulation
