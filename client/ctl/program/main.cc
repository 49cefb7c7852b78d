// engramctl: the command line of an Engram memory pool.
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/ctl/command_line.h"

int main(int argc, char** argv) {
  // gRPC logs connection retries to stderr by itself; its failures reach the user as messages of
  // ours.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  // `engramctl get shards | head` ends quietly.
  std::signal(SIGPIPE, SIG_DFL);
  const engram::ctl::Terminal terminal = engram::ctl::Terminal::Standard();
  return engram::ctl::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), terminal);
}
