#include "poolserver/checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engram/checkpoint/writer.h"
#include "tests/checkpoint/temporary_folder.h"

namespace engram::poolserver {
namespace {

class CheckpointsTest : public testing::Test {
 protected:
  void Write(std::uint64_t seed) {
    CheckpointPlan plan;
    plan.directory = folder_.path();
    plan.geometry.layers = {1};
    plan.geometry.base_rows = 500;
    plan.geometry.raw_vocab = 1000;
    plan.seed = seed;
    ASSERT_TRUE(WriteCheckpoint(plan).ok());
  }
  std::shared_ptr<const CheckpointSource> Open(const std::string& name_map = "") {
    auto opened = checkpoints_.Open(folder_.path(), name_map);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }

  TemporaryFolder folder_;
  Checkpoints checkpoints_;
};

TEST_F(CheckpointsTest, ADirectoryThatDidNotChangeIsOpenedOnce) {
  Write(1);
  const auto first = Open();
  EXPECT_EQ(Open(), first);
  EXPECT_NE(Open(R"({})"), first) << "another name map may mean other tensors";
  EXPECT_EQ(Open(), first);
}

TEST_F(CheckpointsTest, EveryChangeOfTheDirectoryIsSeen) {
  Write(1);
  const auto first = Open();
  std::ofstream(folder_.path() + "/another") << "file";
  const auto second = Open();
  EXPECT_NE(second, first);
  Write(2);
  const auto third = Open();
  EXPECT_NE(third, second);
  std::filesystem::remove(folder_.path() + "/config.json");
  EXPECT_EQ(checkpoints_.Open(folder_.path(), "").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointsTest, WhatIsUsedGoesOnWhenManyOthersWereOpened) {
  Write(1);
  const auto kept = Open();
  for (int i = 0; i < 10; ++i) Open("{" + std::string(static_cast<std::size_t>(i), ' ') + "}");
  EXPECT_EQ(kept->spec().Rows(), Open()->spec().Rows());
}

}  // namespace
}  // namespace engram::poolserver
