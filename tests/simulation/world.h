// The simulated world: one queue of events in simulated time, one seeded source of randomness, and
// processes whose clocks run at their own rates. Everything that happens in a simulation is an
// event here, so one seed gives one history. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "engram/clock.h"
#include "engram/random.h"

namespace engram::simulation {

class Stream;

class World {
 public:
  using Event = std::function<void()>;

  explicit World(std::uint64_t seed) : random_(seed) {}

  Instant now() const { return now_; }
  Random& random() { return random_; }
  // Uniform in [0, bound) / [from, to).
  std::uint64_t Below(std::uint64_t bound) { return random_.Below(bound); }
  Duration Between(Duration from, Duration to);
  bool Chance(unsigned percent) { return Below(100) < percent; }

  void At(Instant when, Event event);
  void After(Duration delay, Event event) { At(now_ + delay, std::move(event)); }
  // Runs events until `end`, or until something failed.
  void RunUntil(Instant end);

  // An invariant of the pool is broken: the run ends.
  void Fail(const std::string& what);
  const std::vector<std::string>& failures() const { return failures_; }
  // One line of history; printed only when ENGRAM_SIM_TRACE is set.
  void Trace(const std::string& line) const;
  bool tracing() const { return tracing_; }

  // No message passes between the two until `until`; messages wait, as TCP makes them.
  void Cut(const std::string& a, const std::string& b, Instant until);
  // Until `until` every message from `from` to `to` takes longer, by less than `most`.
  void Slow(const std::string& from, const std::string& to, Instant until, Duration most);
  Duration Slowness(const std::string& from, const std::string& to);
  // When a message between the two may pass: now, or the end of the cut.
  Instant PassableAt(const std::string& a, const std::string& b) const;

 private:
  struct Entry {
    Instant when;
    std::uint64_t order;
    Event event;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  SeededRandom random_;
  Instant now_{std::chrono::seconds(1'000)};
  std::uint64_t order_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue_;
  std::map<std::pair<std::string, std::string>, Instant> cuts_;
  std::map<std::pair<std::string, std::string>, std::pair<Instant, Duration>> slow_;
  std::vector<std::string> failures_;
  const bool tracing_ = std::getenv("ENGRAM_SIM_TRACE") != nullptr;
};

// One process: it has a life from Start to Crash, and a clock of its own that goes on while the
// process is stopped. Events of a life that ended are dropped; events of a stopped process wait.
class Process {
 public:
  // The clock gains `rate_ppm` microseconds a second.
  Process(World* world, std::string name, std::int64_t rate_ppm, Duration offset);
  ~Process();

  World& world() const { return *world_; }
  const std::string& name() const { return name_; }
  const Clock& clock() const { return clock_; }
  Instant Now() const { return clock_.Now(); }
  std::uint64_t life() const { return life_; }
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  // By the world's clock.
  Instant awake_since() const { return awake_since_; }

  void Start();
  // Ends the life; streams of it are lost to their other ends.
  void Crash();
  // SIGSTOP and SIGCONT.
  void Stop() { stopped_ = alive_; }
  void Wake();

  // Runs `event` in this life: now, when the process wakes, or never.
  void Run(std::uint64_t life, World::Event event);
  void After(Duration delay, World::Event event);
  // When this process's clock shows `local`.
  void AtLocal(Instant local, World::Event event);
  void Join(const std::shared_ptr<Stream>& stream) { streams_.push_back(stream); }

 private:
  class LocalClock final : public Clock {
   public:
    explicit LocalClock(const Process* process) : process_(*process) {}
    Instant Now() const override;

   private:
    const Process& process_;
  };

  World* const world_;
  const std::string name_;
  const std::int64_t rate_ppm_;
  const Duration offset_;
  const Instant origin_;
  LocalClock clock_{this};
  std::uint64_t life_ = 0;
  bool alive_ = false;
  bool stopped_ = false;
  Instant awake_since_{};
  std::vector<World::Event> held_;
  std::vector<std::weak_ptr<Stream>> streams_;
};

// A connection between two lives: messages arrive in order, each way, after a random delay; it is
// closed by one end or severed by the world. A message is what the other end does with it.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> Connect(World* world, Process* a, Process* b);

  // `lost` runs in `end`'s process when the other end closed, crashed, or the stream was severed.
  void OnLost(const Process* end, World::Event lost);
  void Send(const Process* from, World::Event deliver);
  // The other end hears of it after everything that was sent before.
  void Close(const Process* from);
  // Both ends lose it; messages under way are lost.
  void Sever();
  // At the end of the world: what was not delivered may hold streams, this one included.
  void Forget();
  bool open(const Process* end) const { return ends_[Index(end)].open; }

 private:
  struct End {
    Process* process = nullptr;
    std::uint64_t life = 0;
    bool open = true;
    World::Event lost;
    std::vector<World::Event> inbox;  // in order; taken from the front
    std::size_t taken = 0;
    Instant last_arrival{};
  };
  explicit Stream(World* world) : world_(world) {}
  std::size_t Index(const Process* process) const { return ends_[0].process == process ? 0 : 1; }
  void Push(End& to, World::Event event);
  void Arrive(std::size_t to);
  World::Event LostAt(std::size_t end);

  World* const world_;
  End ends_[2];
};

}  // namespace engram::simulation
