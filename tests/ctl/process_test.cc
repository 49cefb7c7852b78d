#include "client/ctl/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    std::string pattern = testing::TempDir() + "process_test.XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~ProcessTest() override {
    for (const ProcessId& process : started_) (void)StopProcesses({process}, Duration::zero());
    fs::remove_all(dir_);
  }

  ProcessId Start(const std::string& script) {
    const auto process = StartDaemon({"/bin/sh", {"-c", script}, dir_ + "/log"});
    EXPECT_TRUE(process.ok()) << process.status();
    started_.push_back(*process);
    return *process;
  }

  std::string dir_;
  std::vector<ProcessId> started_;
};

TEST_F(ProcessTest, ADaemonWritesToItsLog) {
  const ProcessId process = Start("echo started; echo trouble >&2");
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(TailOf(dir_ + "/log", 5), "started\ntrouble");
}

TEST_F(ProcessTest, ADaemonLeadsItsOwnSessionUntilItIsStopped) {
  const ProcessId process = Start("exec sleep 60");
  EXPECT_TRUE(IsRunning(process));
  EXPECT_EQ(getsid(process.pid), process.pid);
  EXPECT_GT(StartedUnixMs(process), 0);
  ASSERT_TRUE(StopProcesses({process}, seconds(5)).ok());
  EXPECT_FALSE(IsRunning(process));
  EXPECT_EQ(StartedUnixMs(process), 0);
}

TEST_F(ProcessTest, AZombieDoesNotRun) {
  const ProcessId process = Start("exit 3");
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(IsRunning(process));
}

TEST_F(ProcessTest, StopKillsAProcessThatIgnoresTerm) {
  const ProcessId process = Start("trap '' TERM; while :; do sleep 0.05; done");
  EXPECT_TRUE(StopProcesses({process}, std::chrono::milliseconds(200)).ok());
  EXPECT_FALSE(IsRunning(process));
}

TEST_F(ProcessTest, ARecycledPidIsNeitherRunningNorKilled) {
  const ProcessId real = Start("exec sleep 60");
  ProcessId recycled = real;
  recycled.start_ticks += 1;
  EXPECT_FALSE(IsRunning(recycled));
  EXPECT_TRUE(StopProcesses({recycled}, Duration::zero()).ok());
  EXPECT_TRUE(IsRunning(real));
  ProcessId before_reboot = real;
  before_reboot.boot = "another-boot";
  EXPECT_FALSE(IsRunning(before_reboot));
}

TEST_F(ProcessTest, PidFilesReadBackAndGarbageIsNotFound) {
  const ProcessId process{4242, 1234567, "boot"};
  const std::string path = dir_ + "/a.pid";
  ASSERT_TRUE(WritePidFile(path, process).ok());
  EXPECT_EQ(*ReadPidFile(path), process);
  std::ofstream(path) << "garbage";
  EXPECT_TRUE(absl::IsNotFound(ReadPidFile(path).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadPidFile(dir_ + "/missing").status()));
}

TEST_F(ProcessTest, AMissingProgramIsNamed) {
  const auto process = StartDaemon({dir_ + "/nothing", {}, dir_ + "/log"});
  EXPECT_TRUE(absl::IsNotFound(process.status()));
  EXPECT_NE(process.status().message().find(dir_ + "/nothing"), absl::string_view::npos);
}

TEST_F(ProcessTest, TailGivesTheLastLines) {
  std::ofstream(dir_ + "/text") << "1\n2\n3\n4\n";
  EXPECT_EQ(TailOf(dir_ + "/text", 2), "3\n4");
  EXPECT_EQ(TailOf(dir_ + "/none", 2), "");
}

}  // namespace
}  // namespace engram::ctl
