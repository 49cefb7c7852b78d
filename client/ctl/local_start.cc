#include "client/ctl/local_start.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr milliseconds kPoll{50};
constexpr int kLogLines = 15;

// Node name -> the newest incarnation that the controller has seen alive.
using Incarnations = std::map<std::string, std::uint64_t>;

// One start of one pool: what was started, and by when all of it must be ready.
class Starter {
 public:
  Starter(const LocalPool& pool, Duration limit, const Terminal& terminal)
      : pool_(pool),
        program_dir_(ProgramDir()),
        limit_(limit),
        deadline_(std::chrono::steady_clock::now() + limit),
        stub_(pool.settings().endpoint, seconds(1), nullptr),
        progress_(terminal) {}

  absl::Status Run() {
    if (auto status = StartOne(std::string(kController)); !status.ok()) return status;
    if (auto status = AwaitController(); !status.ok()) return status;
    const Incarnations before = Alive();
    for (const LocalDaemon& daemon : pool_.Daemons()) {
      if (auto status = StartOne(daemon.name); !status.ok()) return status;
    }
    return AwaitNodes(before);
  }

  const std::vector<std::string>& started() const { return started_; }

  void StopStarted() const {
    std::vector<ProcessId> processes;
    for (const LocalDaemon& daemon : pool_.Daemons()) {
      const bool ours = std::find(started_.begin(), started_.end(), daemon.name) != started_.end();
      if (ours && daemon.process) processes.push_back(*daemon.process);
    }
    (void)StopProcesses(processes, seconds(3));
  }

 private:
  absl::Status StartOne(const std::string& name) {
    const auto started = pool_.Start(name, program_dir_);
    if (!started.ok()) return started.status();
    if (*started) started_.push_back(name);
    return absl::OkStatus();
  }

  // A daemon that ended by itself will not get ready: say why.
  absl::Status CheckAlive() const {
    for (const LocalDaemon& daemon : pool_.Daemons()) {
      if (!daemon.process || daemon.running) continue;
      const std::string tail = TailOf(daemon.log, kLogLines);
      return absl::FailedPreconditionError(absl::StrCat(
          daemon.name, " ended while the pool was starting; the end of ", daemon.log, ":\n  ",
          tail.empty() ? "(empty)" : absl::StrReplaceAll(tail, {{"\n", "\n  "}})));
    }
    return absl::OkStatus();
  }

  absl::Status Late(const std::string& what) const {
    std::string logs;
    for (const LocalDaemon& daemon : pool_.Daemons()) {
      const std::string tail = TailOf(daemon.log, 3);
      if (!tail.empty()) absl::StrAppend(&logs, "\n", daemon.log, ":\n", tail);
    }
    return absl::DeadlineExceededError(
        absl::StrCat(what, " within ", FormatDuration(limit_),
                     "; raise it with --timeout, or read the logs:", logs));
  }

  absl::Status AwaitController() {
    for (;;) {
      if (auto alive = CheckController(); !alive.ok()) return alive;
      if (stub_.PoolInfo().ok()) return absl::OkStatus();
      if (std::chrono::steady_clock::now() >= deadline_)
        return Late("the controller did not answer");
      progress_.Show("waiting for the controller ...");
      std::this_thread::sleep_for(kPoll);
    }
  }

  // Dead nodes are no fault yet: they are started next.
  absl::Status CheckController() const {
    const LocalDaemon controller = pool_.Daemons().front();
    return controller.running ? absl::OkStatus() : CheckAlive();
  }

  Incarnations Alive() const {
    Incarnations alive;
    const auto nodes = stub_.Nodes();
    if (!nodes.ok()) return alive;
    for (const v1::Node& node : nodes->nodes()) {
      if (node.alive()) alive[node.node()] = node.incarnation();
    }
    return alive;
  }

  // A node that was started has joined when its incarnation is newer than before: the controller
  // may go on believing in the dead one for a while.
  absl::Status AwaitNodes(const Incarnations& before) {
    for (;;) {
      if (auto alive = CheckAlive(); !alive.ok()) return alive;
      std::vector<std::string> missing;
      const Incarnations now = Alive();
      for (const LocalDaemon& daemon : pool_.Daemons()) {
        if (daemon.name == kController) continue;
        const bool fresh =
            std::find(started_.begin(), started_.end(), daemon.name) != started_.end();
        const auto old = before.find(daemon.name);
        const std::uint64_t at_least =
            fresh && old != before.end() ? old->second + 1 : std::uint64_t{0};
        const auto found = now.find(daemon.name);
        if (found == now.end() || found->second < at_least) missing.push_back(daemon.name);
      }
      if (missing.empty()) return absl::OkStatus();
      const std::string names = absl::StrJoin(missing, ", ");
      if (std::chrono::steady_clock::now() >= deadline_) return Late(names + " did not join");
      progress_.Show("waiting for " + names + " ...");
      std::this_thread::sleep_for(kPoll);
    }
  }

  const LocalPool& pool_;
  const std::string program_dir_;
  const Duration limit_;
  const SteadyTime deadline_;
  const PoolStub stub_;
  Progress progress_;
  std::vector<std::string> started_;
};

}  // namespace

absl::StatusOr<StartReport> StartAndAwait(const LocalPool& pool, Duration limit,
                                          const Terminal& terminal) {
  Starter starter(pool, limit, terminal);
  const absl::Status status = starter.Run();
  if (status.ok()) return StartReport{starter.started()};
  starter.StopStarted();
  return status;
}

}  // namespace engram::ctl
