#include "tests/simulation/program/workers.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::simulation {
namespace {

// Small enough to be written to a pipe at once.
struct Record {
  std::uint64_t seed = 0;
  bool begun = false;  // else done
  Results results;
  char failure[400] = {};
};

void Write(int fd, const Record& record) {
  if (write(fd, &record, sizeof record) != static_cast<ssize_t>(sizeof record)) _exit(3);
}

void RunOne(int fd, ScenarioOptions options, std::uint64_t seed) {
  options.seed = seed;
  Record record;
  record.seed = seed;
  record.begun = true;
  Write(fd, record);
  const ScenarioOutcome outcome = RunScenario(options);
  record.begun = false;
  record.results = outcome.results;
  if (!outcome.failures.empty()) {
    std::strncpy(record.failure, outcome.failures.front().c_str(), sizeof record.failure - 1);
  }
  Write(fd, record);
}

// Every `stride`th seed from `next` on, in a child whose reports come through `fd`.
class Worker {
 public:
  Worker(const ScenarioOptions& like, std::uint64_t next, std::uint64_t end, std::uint64_t stride,
         bool quiet)
      : like_(like), next_(next), end_(end), stride_(stride), quiet_(quiet) {
    Begin();
  }

  bool done() const { return fd_ < 0; }
  int fd() const { return fd_; }

  // Something can be read.
  void Hear(const std::function<void(const SeedReport&)>& report) {
    Record record;
    const ssize_t got = read(fd_, &record, sizeof record);
    if (got != static_cast<ssize_t>(sizeof record)) return End(report);
    next_ = record.seed + (record.begun ? 0 : stride_);
    running_ = record.begun;
    if (!record.begun) report({record.seed, record.results, record.failure});
  }

 private:
  void Begin() {
    if (next_ >= end_) return;
    int ends[2];
    ENGRAM_CHECK(pipe(ends) == 0);
    child_ = fork();
    ENGRAM_CHECK(child_ >= 0);
    if (child_ == 0) {
      close(ends[0]);
      if (quiet_ && std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
      for (std::uint64_t seed = next_; seed < end_; seed += stride_) RunOne(ends[1], like_, seed);
      _exit(0);
    }
    close(ends[1]);
    fd_ = ends[0];
  }

  void End(const std::function<void(const SeedReport&)>& report) {
    close(fd_);
    fd_ = -1;
    int status = 0;
    waitpid(child_, &status, 0);
    if (!running_) return;
    running_ = false;
    report({next_,
            {},
            absl::StrCat("the process ended: ",
                         WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit")});
    next_ += stride_;
    Begin();
  }

  const ScenarioOptions like_;
  std::uint64_t next_;
  const std::uint64_t end_, stride_;
  const bool quiet_;
  bool running_ = false;
  pid_t child_ = -1;
  int fd_ = -1;
};

}  // namespace

void RunSeeds(const ScenarioOptions& like, std::uint64_t first, std::uint64_t count,
              std::size_t jobs, bool quiet, const std::function<void(const SeedReport&)>& done) {
  std::vector<Worker> workers;
  for (std::size_t i = 0; i < jobs; ++i)
    workers.emplace_back(like, first + i, first + count, jobs, quiet);
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Worker*> of;
    for (Worker& worker : workers) {
      if (worker.done()) continue;
      waits.push_back({worker.fd(), POLLIN, 0});
      of.push_back(&worker);
    }
    if (waits.empty()) return;
    ENGRAM_CHECK(poll(waits.data(), waits.size(), -1) > 0);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0) of[i]->Hear(done);
    }
  }
}

SeedReport RunAlone(const ScenarioOptions& options) {
  SeedReport result;
  RunSeeds(options, options.seed, 1, 1, true, [&](const SeedReport& report) { result = report; });
  return result;
}

}  // namespace engram::simulation
