// What the tests of the controller stand on: a small pool and a way to a table that is Ready.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "placement/ops/controller.h"
#include "tests/placement/small_pool.h"

namespace engram::placement {

inline const TableName kSmall{"small", "1"};

inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

class ControllerTest : public ::testing::Test {
 protected:
  // A Ready table over the nodes given.
  void LoadSmall(std::vector<FakeNode*> nodes, std::uint32_t replicas = 1) {
    for (FakeNode* node : nodes) pool_.Join(*node);
    const auto answer = pool_.Load(SmallLoad("r1", replicas));
    ASSERT_TRUE(answer && answer->ok()) << answer->status();
    pool_.Settle(nodes);
    ASSERT_EQ(pool_.StateOf(kSmall), TableState::kReady);
  }
  SmallPool pool_;
};

}  // namespace engram::placement
