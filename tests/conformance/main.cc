// The suite, or with `--target RIG NODE INCARNATION ADDRESS` a node for it to read from.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <string>

#include "tests/conformance/node.h"
#include "tests/conformance/rig.h"

int main(int argc, char** argv) {
  using namespace engram::fabric::conformance;
  signal(SIGPIPE, SIG_IGN);  // a child that was killed is an answer, not the end of the suite
  if (argc == 6 && std::string(argv[1]) == "--target") {
    const Rig* rig = FindRig(argv[2]);
    if (rig == nullptr) return 2;
    return ServeNode(*rig, {engram::NodeId{argv[3]},
                            engram::Incarnation(strtoull(argv[4], nullptr, 10)), argv[5]});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
