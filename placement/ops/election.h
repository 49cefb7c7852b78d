// Who leads among several controllers of one StateStore: the holder of the record `leader`, who
// renews it by compare-and-swap. State machine without threads or sockets; ElectionLoop drives it.
//
// The lease: the leader counts it from the moment it *sent* the write that was stored; everybody
// else from the moment they *read* a record that they had not seen, and they wait `margin` longer,
// as readers' leases do (ARCHITECTURE section 4, rule 2). So a leader has stopped before another
// begins, on clocks that agree only in their rate. A write that fails, or whose answer is lost,
// gives nothing: the record is read and written anew. What a leader that was stopped still sends is
// refused by its fencing token, at the store and at the nodes; the lease is why that is rare.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "placement/ops/protocol_switches.h"
#include "placement/store/state_store.h"

namespace engram::placement {

inline constexpr char kLeaderKey[] = "leader";

struct LeaderRecord {
  std::string holder;  // a process; empty: it has resigned
  std::string address;
  std::uint64_t term = 0;     // grows with each leader
  std::uint64_t renewal = 0;  // within the term
  Duration lease{};
  friend bool operator==(const LeaderRecord&, const LeaderRecord&) = default;
};
std::string Encode(const LeaderRecord& record);
absl::StatusOr<LeaderRecord> DecodeLeader(std::string_view bytes);

class Election {
 public:
  struct Options {
    std::string holder;   // of this process, and of no other ever
    std::string address;  // where it can be reached
    Duration lease = std::chrono::seconds(5);
  };
  // What others wait beyond a lease.
  static Duration Margin(Duration lease) { return std::chrono::seconds(1) + lease / 100; }

  // ---- events ----
  struct Tick {};
  struct RecordRead {
    absl::StatusOr<std::optional<StoreEntry>> entry;
  };
  struct RecordWritten {
    absl::StatusOr<Revision> revision;
  };
  // The process ends: another may lead at once.
  struct Resign {};
  using Event = std::variant<Tick, RecordRead, RecordWritten, Resign>;

  // ---- actions ---- (of the first two one at a time, each answered by its event)
  struct ReadRecord {};
  struct WriteRecord {
    StoreTxn txn;
  };
  struct Lead {
    Instant until;
    std::uint64_t term = 0;
  };
  struct Follow {
    std::string leader;  // address; empty: nobody is known
  };
  using Action = std::variant<ReadRecord, WriteRecord, Lead, Follow>;

  explicit Election(Options options, ProtocolSwitches switches = {})
      : options_(std::move(options)), switches_(switches) {}

  std::vector<Action> OnEvent(Instant now, const Event& event);
  bool leads() const { return leads_; }
  // When the next Tick has something to do.
  Instant NextTimer() const { return leads_ ? std::min(next_, until_) : next_; }

 private:
  void OnTick(Instant now);
  void OnRead(Instant now, const RecordRead& read);
  void OnWritten(Instant now, const RecordWritten& written);
  void Write(Instant now, LeaderRecord record);
  void Claim(Instant now, std::uint64_t term);
  void StepBack(Instant now, std::string leader);
  Duration PollEvery() const { return options_.lease / 8; }

  const Options options_;
  const ProtocolSwitches switches_;
  std::vector<Action> actions_;
  bool leads_ = false;
  bool waiting_ = false;    // for the answer to a read or write
  bool read_first_ = true;  // the record may be another than revision_ says
  Instant until_{};         // of the lease
  Instant sent_{};          // the write that is under way
  Instant next_{};
  Revision revision_;  // of the record as it was last read or written
  LeaderRecord mine_;  // as it was last written
  std::optional<std::pair<Revision, Instant>> seen_;  // another's record, and since when
  std::string followed_;
};

}  // namespace engram::placement
