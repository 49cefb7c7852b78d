// What all clients read, decayed and summed: rows a second of each shard, the hottest n-grams, and
// who reads. Clients are the only ones who know: one-sided reads pass by the pool's CPUs. Nothing
// of it is stored; after a restart it fills again within minutes. Bounded: kMostClients clients,
// kMostNgrams n-grams a table; a shard costs 8 bytes.
//
// A read counts half after `half_life`, so that a rate is an average over the last few of them.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/mutex.h"

namespace engram::placement {

struct NgramReads {
  std::vector<std::uint64_t> rows;
  double reads = 0;  // in a report: how many, at least; in an answer: a second
};

struct TableReads {
  TableUid table;
  std::uint32_t shards = 0;                                    // that the table has
  std::vector<std::pair<std::uint32_t, std::uint64_t>> reads;  // (shard, rows)
  std::vector<NgramReads> ngrams;
};

struct HeatReport {
  std::string client, tenant;
  std::uint64_t process = 0;
  std::uint64_t sequence = 0;  // grows with every report of a process
  std::vector<TableReads> tables;
  Duration covers = std::chrono::seconds(1);  // the time before it that it tells of
};

struct ClientReads {
  std::string client, tenant;
  double reads_per_second = 0;
  std::uint32_t processes = 0;
  Instant last{};
};

class HeatBoard {
 public:
  static constexpr std::size_t kMostClients = 4096;
  static constexpr std::size_t kMostNgrams = 4096;
  static constexpr Duration kForgetClient = std::chrono::minutes(10);

  explicit HeatBoard(Duration half_life = std::chrono::minutes(1)) : half_life_(half_life) {}

  // A report that was taken before changes nothing. ResourceExhausted: too many clients report.
  absl::Status Take(Instant now, const HeatReport& report);
  // Rows a second, one a shard; empty when nothing is known of the table.
  std::vector<double> Shards(Instant now, const TableUid& table) const;
  // The `most` hottest, the hottest first.
  std::vector<NgramReads> Ngrams(Instant now, const TableUid& table, std::size_t most) const;
  std::vector<ClientReads> Clients(Instant now) const;
  double ReadsPerSecond(Instant now) const;
  std::uint64_t reports() const;
  // Forgets tables for which `keep` is false.
  template <class Keep>
  void Prune(Keep keep) {
    MutexLock lock(&mutex_);
    std::erase_if(tables_, [&](const auto& entry) { return !keep(entry.first); });
  }

 private:
  // A sum whose parts lose half of their weight in each half-life. It is kept in the weights of
  // `since`, which grow with time, so that what is not read costs nothing.
  struct Table {
    Instant since{};  // when it was first heard of
    std::vector<double> shards;
    std::map<std::vector<std::uint64_t>, double> ngrams;
  };
  struct Client {
    Instant since{}, last{};
    double reads = 0;
    std::map<std::uint64_t, std::uint64_t> sequences;  // by process
  };

  double HalfLives(Instant from, Instant to) const;
  // From a weighted sum to a rate now.
  double Rate(double sum, Instant since, Instant now) const;
  void Rebase(Table* table, Instant now) const;
  void DropColdNgrams(Table* table) const;
  double TakeTable(Instant now, Duration covers, const TableReads& reads)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetSilent(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Duration half_life_;
  mutable Mutex mutex_;
  std::map<TableUid, Table> tables_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, Client> clients_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::placement
