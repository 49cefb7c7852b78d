// The moving part of `placement`: a node of a real pool is drained, or killed and repaired, under
// reads over `stream`.
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/moved_pool.h"

namespace engram::bench {
namespace {

using Moved = MovedPool::Moved;

constexpr Duration kAloneFor = std::chrono::seconds(3);
// Of the repaired pool: time to measure reads of what is left before the repair begins.
constexpr char kDeadAfter[] = "2s", kRepairAfter[] = "8s";
constexpr Duration kFindOut = std::chrono::seconds(3);  // longer than kDeadAfter
constexpr Duration kRepairLimit = std::chrono::minutes(2);

// Tail of reads while `change` runs on a thread of its own, over that of reads alone; bytes over
// the time that it says it took.
absl::StatusOr<Moved> Beside(MovedPool& pool,
                             const std::function<absl::StatusOr<Duration>()>& change) {
  auto alone = pool.TailFor(kAloneFor);
  if (!alone.ok()) return alone.status();
  std::atomic<bool> done{false};
  absl::StatusOr<Duration> took = Duration();
  std::thread other([&] {
    took = change();
    done = true;
  });
  auto beside = pool.TailUntil([&] { return done.load(); });
  other.join();
  if (!took.ok()) return took.status();
  if (!beside.ok()) return beside.status();
  return Moved{*beside / *alone, pool.bytes() / Seconds(*took) / static_cast<double>(kMoveRate)};
}

// Everything that `node` has goes to the other one, which then is where the next round starts.
absl::StatusOr<Moved> Drain(MovedPool& pool, const std::string& node) {
  auto moved = Beside(pool, [&]() -> absl::StatusOr<Duration> {
    const Instant asked = SystemClock::Get().Now();
    auto drained = pool.scene().pool->Ctl({"drain", "node", node, "--wait"});
    if (!drained.ok()) return drained.status();
    return SystemClock::Get().Now() - asked;
  });
  auto back = pool.scene().pool->Ctl({"uncordon", "node", node});
  if (!back.ok()) return back.status();
  return moved;
}

// How many replicas each node serves, as the map has it.
absl::StatusOr<std::map<std::string, std::size_t>> Served(const LocalPool& pool) {
  auto listed = pool.Ctl({"get", "replicas"});
  if (!listed.ok()) return listed.status();
  std::map<std::string, std::size_t> served;
  std::istringstream lines(*listed);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, node, tier, state;
    words >> name >> node >> tier >> state;
    if (state == "Serving") ++served[node];
  }
  return served;
}

absl::Status Kill(const LocalPool& pool, const std::string& node) {
  auto status = pool.Local("status");
  if (!status.ok()) return status.status();
  std::istringstream lines(*status);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, state, pid;
    words >> name >> state >> pid;
    int number = 0;
    if (name == node && absl::SimpleAtoi(pid, &number) && kill(number, SIGKILL) == 0) {
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat("no process of node ", node, " in:\n", *status));
}

// From when the first shard is on its way until every copy that `dead` had is served elsewhere.
absl::StatusOr<Duration> AwaitRepair(const LocalPool& pool, const std::string& dead,
                                     std::size_t copies) {
  const Clock& clock = SystemClock::Get();
  const Instant limit = clock.Now() + kRepairLimit;
  std::optional<Instant> began;
  while (clock.Now() < limit) {
    if (!began) {
      auto moves = pool.Ctl({"get", "plans", "-o", "name"});
      if (!moves.ok()) return moves.status();
      if (!moves->empty()) began = clock.Now();
    } else {
      auto served = Served(pool);
      if (!served.ok()) return served.status();
      std::size_t others = 0;
      for (const auto& [node, count] : *served) others += node == dead ? 0 : count;
      if (others == copies) return clock.Now() - *began;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(began ? 200 : 50));
  }
  return absl::DeadlineExceededError(absl::StrCat("node ", dead, " is not repaired in time"));
}

// A node that has a whole copy is killed; the third node gets one from the second.
absl::StatusOr<Moved> Repair(MovedPool& pool) {
  const LocalPool& local = *pool.scene().pool;
  auto served = Served(local);
  if (!served.ok()) return served.status();
  if (served->size() != 2) return absl::InternalError("the table is not on two nodes");
  const std::string node = served->begin()->first;
  const std::size_t copies = served->begin()->second + served->rbegin()->second;
  if (absl::Status killed = Kill(local, node); !killed.ok()) return killed;
  pool.ReadThrough(kFindOut);
  auto moved = Beside(pool, [&] { return AwaitRepair(local, node, copies); });
  auto back = local.Local("up");
  if (!back.ok()) return back.status();
  return moved;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> MeasureMoves(const BenchOptions& options) {
  auto pool = MovedPool::Up(options, {2, "1", "1"});
  if (!pool.ok()) return pool.status();
  auto served = Served(*(*pool)->scene().pool);
  if (!served.ok()) return served.status();
  std::string node = served->begin()->first;
  std::vector<Moved> rounds;
  for (int round = 0; round < (*pool)->scene().rounds(); ++round) {
    auto moved = Drain(**pool, node);
    if (!moved.ok()) return moved.status();
    rounds.push_back(*moved);
    node = node == "node-0" ? "node-1" : "node-0";
  }
  return (*pool)->Figures("read_p99_during_move", "move_vs_rate",
                          "the same decode steps (batch 64, stream) with nothing moving", rounds);
}

absl::StatusOr<std::vector<Figure>> MeasureRepairs(const BenchOptions& options) {
  // The daemons of the pool inherit them.
  setenv("ENGRAM_DEAD_AFTER", kDeadAfter, 1);
  setenv("ENGRAM_REPAIR_AFTER", kRepairAfter, 1);
  auto pool = MovedPool::Up(options, {3, "2", "2"});
  unsetenv("ENGRAM_DEAD_AFTER");
  unsetenv("ENGRAM_REPAIR_AFTER");
  if (!pool.ok()) return pool.status();
  std::vector<Moved> rounds;
  for (int round = 0; round < (*pool)->scene().rounds(); ++round) {
    auto moved = Repair(**pool);
    if (!moved.ok()) return moved.status();
    rounds.push_back(*moved);
  }
  return (*pool)->Figures("read_p99_during_repair", "repair_vs_rate",
                          "the same decode steps with one copy left and nothing repaired", rounds);
}

}  // namespace engram::bench
