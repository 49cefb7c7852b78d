// Which gather may go when: a token bucket for each tenant that has a budget, and fair turns of its
// sessions in rows. Tenants without a budget are not held up. No thread, no clock: `now` is given.
//
//   if (!share.Ask(now, tenant, session, rows, ticket)) ... wait until Release returns the ticket
//
// A bucket fills at the budget's rate up to kBurst of it; a gather goes while the bucket is not
// empty and may leave it in debt, so that one larger than the bucket goes, too. While sessions of a
// tenant wait, the next one is the one that has had the fewest rows (start-time fair queueing), so
// that one which asks for much does not keep the others out. Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engram/clock.h"

namespace engram::fabric::stream {

class FairShare {
 public:
  using Ticket = std::uint64_t;
  using Session = std::uint64_t;
  static constexpr Duration kBurst = std::chrono::milliseconds(100);

  // 0 takes the limit away; what waits is released by the next Release.
  void SetBudget(Instant now, const std::string& tenant, std::uint64_t rows_per_second);
  bool has_budgets() const { return !buckets_.empty(); }

  // True: go on. False: `ticket` waits.
  bool Ask(Instant now, const std::string& tenant, Session session, std::uint32_t rows,
           Ticket ticket);
  // Those that may go now, in their order.
  std::vector<Ticket> Release(Instant now);
  // Everything that waits, whatever the budgets say.
  std::vector<Ticket> ReleaseAll();
  // When Release has something to return at the latest; nothing: nobody waits.
  std::optional<Instant> Next() const;
  std::size_t waiting() const { return waiting_; }

 private:
  struct Asked {
    Ticket ticket = 0;
    std::uint32_t rows = 0;
  };
  struct Turn {
    std::deque<Asked> asked;
    double start = 0;  // rows that it will have had when its first one goes
  };
  struct Bucket {
    double rate = 0;  // rows a second; 0: it only empties its queue
    double tokens = 0;
    Instant filled{};
    double time = 0;  // of the turns: the start of the last one
    std::map<Session, Turn> turns;
  };

  static void Fill(Bucket* bucket, Instant now);
  void ReleaseFrom(Bucket* bucket, std::vector<Ticket>* out);

  std::map<std::string, Bucket> buckets_;
  std::size_t waiting_ = 0;
};

}  // namespace engram::fabric::stream
