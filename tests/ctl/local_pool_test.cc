#include "client/ctl/local_pool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "client/ctl/process.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

class LocalPoolTest : public testing::Test {
 protected:
  LocalPoolTest() {
    std::string pattern = testing::TempDir() + "local_pool_test.XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~LocalPoolTest() override {
    (void)StopProcesses(started_, Duration::zero());
    fs::remove_all(dir_);
  }

  // Something that runs, in the place of a daemon.
  void Run(const std::string& name) {
    const auto process = StartDaemon({"/bin/sleep", {"60"}, dir_ + "/log/" + name + ".log"});
    ASSERT_TRUE(process.ok()) << process.status();
    started_.push_back(*process);
    ASSERT_TRUE(WritePidFile(dir_ + "/run/" + name + ".pid", *process).ok());
  }

  std::string dir_;
  std::vector<ProcessId> started_;
};

TEST_F(LocalPoolTest, SettingsSurviveAndChangeWhileNothingRuns) {
  {
    auto pool = LocalPool::Create(dir_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    ASSERT_TRUE(pool->Configure({.nodes = 2, .memory_per_node = 64 << 20, .port = 0}).ok());
  }
  auto pool = LocalPool::Open(dir_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->settings().nodes, 2u);
  EXPECT_EQ(pool->settings().memory_per_node, 64u << 20);
  const std::string endpoint = pool->settings().endpoint;
  ASSERT_TRUE(pool->Configure({.nodes = 1}).ok());
  EXPECT_EQ(pool->settings().nodes, 1u);
  EXPECT_EQ(pool->settings().endpoint, endpoint);
}

TEST_F(LocalPoolTest, TiersSurviveAndSayHowMuchAndWhere) {
  {
    auto pool = LocalPool::Create(dir_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    EXPECT_TRUE(absl::IsInvalidArgument(pool->Configure({.cxl_per_node = 1 << 20, .port = 0})));
  }
  {
    auto pool = LocalPool::Create(dir_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    ASSERT_TRUE(pool->Configure({.nvme_per_node = 64 << 20,
                                 .cxl_per_node = 32 << 20,
                                 .cxl_numa_node = 1,
                                 .port = 0})
                    .ok());
  }
  auto pool = LocalPool::Open(dir_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->settings().nvme_per_node, 64u << 20);
  EXPECT_EQ(pool->settings().cxl_per_node, 32u << 20);
  EXPECT_EQ(pool->settings().cxl_numa_node, 1);
  // What a program before tiers wrote.
  std::ofstream(dir_ + "/local.yaml")
      << "endpoint: 127.0.0.1:1\nnodes: 1\nmemory_per_node: 1GiB\nfabric: auto\n";
  const auto old = LocalPool::Peek(dir_);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->settings().nvme_per_node, 0u);
  EXPECT_EQ(old->settings().cxl_numa_node, -1);
}

TEST_F(LocalPoolTest, ARunningPoolRefusesToBecomeAnotherButGrows) {
  auto pool = LocalPool::Create(dir_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(pool->Configure({.nodes = 2, .fabric = "mapped", .port = 0}).ok());
  Run("controller");
  for (const LocalPoolRequest& request :
       {LocalPoolRequest{.nodes = 1}, LocalPoolRequest{.memory_per_node = 1 << 20},
        LocalPoolRequest{.nvme_per_node = 1 << 20},
        LocalPoolRequest{.cxl_per_node = 1 << 20, .cxl_numa_node = 1},
        LocalPoolRequest{.fabric = "stream"}, LocalPoolRequest{.port = 1}}) {
    const absl::Status status = pool->Configure(request);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("local down"), absl::string_view::npos);
  }
  EXPECT_TRUE(pool->Configure({.nodes = 4, .fabric = "mapped"}).ok());
  EXPECT_EQ(pool->Daemons().size(), 5u);
}

TEST_F(LocalPoolTest, OnlyOneCommandWorksOnAPoolButAnyMayLook) {
  auto first = LocalPool::Create(dir_);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->Configure({.port = 0}).ok());
  EXPECT_TRUE(absl::IsAborted(LocalPool::Open(dir_).status()));
  EXPECT_TRUE(LocalPool::Peek(dir_).ok());
}

TEST_F(LocalPoolTest, StopEndsWhatRunsAndForgetsIt) {
  auto pool = LocalPool::Create(dir_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(pool->Configure({.nodes = 1, .port = 0}).ok());
  Run("controller");
  Run("node-0");
  ASSERT_TRUE(pool->Daemons()[1].running);
  ASSERT_TRUE(pool->Stop(std::chrono::seconds(5)).ok());
  for (const ProcessId& process : started_) EXPECT_FALSE(IsRunning(process));
  for (const LocalDaemon& daemon : pool->Daemons()) EXPECT_FALSE(daemon.process.has_value());
  ASSERT_TRUE(pool->Purge().ok());
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(LocalPoolTest, ADirectoryWithOtherThingsIsLeftAlone) {
  std::ofstream(dir_ + "/thesis.txt") << "x";
  EXPECT_TRUE(absl::IsFailedPrecondition(LocalPool::Create(dir_).status()));
  EXPECT_TRUE(absl::IsNotFound(LocalPool::Open(dir_).status()));
  EXPECT_TRUE(fs::exists(dir_ + "/thesis.txt"));
}

TEST_F(LocalPoolTest, AnUnreadableSettingsFileIsNamed) {
  std::ofstream(dir_ + "/local.yaml") << "nodes: [";
  const auto pool = LocalPool::Open(dir_);
  EXPECT_TRUE(absl::IsInvalidArgument(pool.status()));
  EXPECT_NE(pool.status().message().find("local.yaml"), absl::string_view::npos);
}

}  // namespace
}  // namespace engram::ctl
