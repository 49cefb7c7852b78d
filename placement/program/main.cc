// engram-placement: the placement controller. Ends with 0 after SIGTERM or SIGINT, 1 when it cannot
// run or another controller took its state, 2 when the settings are wrong.
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <iostream>

#include "engram/version.h"
#include "placement/rpc/program.h"

namespace {

void SayLine(const std::string& text) {
  char when[32];
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  fprintf(stderr, "%s %s\n", when, text.c_str());
}

// Blocked in every thread, so that only the main thread takes them.
sigset_t BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int one : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, one);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return set;
}

}  // namespace

int main(int argc, char** argv) {
  using engram::placement::PlacementServer;
  auto loaded = engram::LoadSettingsOrExit(engram::placement::PlacementProgram(), argc, argv,
                                           std::cout, std::cerr);
  if (const int* code = std::get_if<int>(&loaded)) return *code;
  const sigset_t signals = BlockSignals();
  auto server = PlacementServer::Start(std::get<engram::Settings>(loaded), SayLine,
                                       [](const absl::Status& why) {
                                         SayLine("stopping: " + std::string(why.message()));
                                         kill(getpid(), SIGUSR1);
                                       });
  if (!server.ok()) {
    fprintf(stderr, "engram-placement: %s\n", std::string(server.status().message()).c_str());
    return absl::IsInvalidArgument(server.status()) ? 2 : 1;
  }
  const int metrics = (*server)->metrics_port();
  SayLine("engram-placement " + std::string(engram::Version()) + " listens on port " +
          std::to_string((*server)->port()) + " of " + (*server)->host() + ", " +
          (metrics == 0 ? "no metrics" : "metrics on port " + std::to_string(metrics)) +
          ", state in " + (*server)->loop().store_name());
  int taken = 0;
  sigwait(&signals, &taken);
  (*server)->Stop();
  SayLine("stopped");
  return taken == SIGUSR1 ? 1 : 0;
}
