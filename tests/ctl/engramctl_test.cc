// The real program: exit codes, streams and suggestions, without a pool.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "checkout.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
};

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class EngramctlTest : public testing::Test {
 protected:
  EngramctlTest() {
    std::string pattern = testing::TempDir() + "engramctl_test.XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~EngramctlTest() override { fs::remove_all(dir_); }

  // `words` as a shell would take them. The context is a file of this test, absent at first.
  Outcome Run(const std::string& words, const std::string& environment = "") {
    const std::string command = "unset ENGRAM_ENDPOINT ENGRAM_TIMEOUT; ENGRAM_CONTEXT=" + dir_ +
                                "/context.yaml " + environment +
                                " " ENGRAM_BINARY_DIR "/bin/engramctl " + words + " >" + dir_ +
                                "/out 2>" + dir_ + "/err";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), ReadFile(dir_ + "/out"), ReadFile(dir_ + "/err")};
  }

  std::string dir_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(EngramctlTest, HelpLeadsWithExamplesOnStandardOutput) {
  for (const char* words : {"--help", "get --help", "help local", "local up -h", "load --help"}) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.code, 0) << words;
    EXPECT_EQ(run.err, "") << words;
    EXPECT_TRUE(Has(run.out, "engramctl")) << words;
  }
  const std::string help = Run("get --help").out;
  EXPECT_TRUE(Has(help, "Examples:"));
  EXPECT_LT(help.find("Examples:"), help.find("Usage:"));
}

TEST_F(EngramctlTest, NoWordsShowTheHelpAsAUsageError) {
  const Outcome run = Run("");
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(Has(run.err, "local up"));
}

TEST_F(EngramctlTest, UnknownWordsSuggestTheNearest) {
  const struct {
    const char* words;
    const char* suggestion;
  } kCases[] = {{"gte tables", "did you mean \"get\"?"},
                {"get tabels --endpoint 127.0.0.1:1", "did you mean \"tables\"?"},
                {"get tables --wach", "did you mean \"--watch\"?"},
                {"local upp", "did you mean \"up\"?"},
                {"local up --fabric maped", "did you mean \"mapped\"?"},
                {"load table a@1 --synthetic x --seal crc32", "did you mean \"crc32c\"?"},
                {"get nodes -o jsn", "did you mean \"json\"?"}};
  for (const auto& one : kCases) {
    const Outcome run = Run(one.words);
    EXPECT_EQ(run.code, 2) << one.words;
    EXPECT_EQ(run.out, "") << one.words;
    EXPECT_TRUE(Has(run.err, one.suggestion)) << one.words << ": " << run.err;
  }
}

TEST_F(EngramctlTest, WithoutAPoolTheNextStepIsSaid) {
  const Outcome run = Run("get tables");
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(Has(run.err, "engramctl local up")) << run.err;
}

TEST_F(EngramctlTest, APoolThatIsAwayIsUnavailable) {
  const Outcome run = Run("get tables --endpoint 127.0.0.1:1 --timeout 5s");
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_TRUE(Has(run.err, "127.0.0.1:1"));
}

TEST_F(EngramctlTest, FlagBeatsVariableBeatsContextBeforeAndAfterTheVerb) {
  std::ofstream(dir_ + "/context.yaml") << "endpoint: 127.0.0.1:3\n";
  EXPECT_TRUE(Has(Run("get nodes").err, "127.0.0.1:3"));
  EXPECT_TRUE(Has(Run("get nodes", "ENGRAM_ENDPOINT=127.0.0.1:2").err, "127.0.0.1:2"));
  EXPECT_TRUE(Has(Run("--endpoint 127.0.0.1:1 get nodes", "ENGRAM_ENDPOINT=127.0.0.1:2").err,
                  "127.0.0.1:1"));
  EXPECT_TRUE(Has(Run("get nodes --endpoint=127.0.0.1:1").err, "127.0.0.1:1"));
}

TEST_F(EngramctlTest, ABrokenContextIsNamed) {
  std::ofstream(dir_ + "/context.yaml") << "- a\n- b: [\n";
  const Outcome run = Run("get nodes");
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(Has(run.err, dir_ + "/context.yaml")) << run.err;
}

TEST_F(EngramctlTest, WrongWordsAreUsageErrors) {
  for (const char* words :
       {"get tables --endpoint nowhere", "get tables --endpoint 127.0.0.1:0",
        "get tables --timeout 5", "get", "get tables a b c", "describe table", "load table small@1",
        "load table small", "load table small@1 --checkpoint a --synthetic b",
        "wait table a@1 --for redy", "explain table a@1 --tokens 1,x",
        "explain table a@1 --tokens 1,2 --position 7", "local up --nodes 0", "local up --nodes x",
        "local up --memory-per-node 1GB", "completion fish"}) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.code, 2) << words << ": " << run.err;
    EXPECT_EQ(run.out, "") << words;
    EXPECT_NE(run.err, "") << words;
  }
}

TEST_F(EngramctlTest, NumbersSayWhatTheyMayBe) {
  EXPECT_TRUE(
      Has(Run("local up --nodes abc").err, "--nodes: \"abc\" is not a whole number, 1 to 64"));
  EXPECT_TRUE(Has(Run("local up --port 99999").err, "not a whole number, 0 to 65535"));
  EXPECT_TRUE(Has(Run("read table a@1 --rows 0 --tokens 1,2").err, "give only one of them"));
}

TEST_F(EngramctlTest, AFabricThatThereIsNotStartsNothing) {
  const Outcome run = Run("local up --fabric telegraph --data-dir " + dir_ + "/pool");
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(Has(run.err, "there is no fabric \"telegraph\"")) << run.err;
  EXPECT_FALSE(fs::exists(dir_ + "/pool"));
}

TEST_F(EngramctlTest, LocalCommandsWithoutAPool) {
  const std::string dir = " --data-dir " + dir_ + "/pool";
  EXPECT_EQ(Run("local status" + dir).code, 3);
  EXPECT_EQ(Run("local down" + dir).code, 0);
  EXPECT_EQ(Run("local up --dry-run" + dir).code, 0);
  EXPECT_FALSE(fs::exists(dir_ + "/pool"));
  std::ofstream(dir_ + "/somebodys_file") << "x";
  const Outcome run = Run("local up --data-dir " + dir_);
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(Has(run.err, "not empty")) << run.err;
  EXPECT_TRUE(fs::exists(dir_ + "/somebodys_file"));
}

TEST_F(EngramctlTest, VersionAndCompletionNeedNoPool) {
  const Outcome version = Run("version --client -o json");
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(Has(version.out, "\"client\": \""));
  const Outcome completion = Run("completion bash");
  EXPECT_EQ(completion.code, 0);
  std::ofstream(dir_ + "/script") << completion.out
                                  << "COMP_WORDS=(engramctl ge) COMP_CWORD=1\n_engramctl\n"
                                     "echo \"${COMPREPLY[@]}\"\n"
                                     "COMP_WORDS=(engramctl get no) COMP_CWORD=2\n_engramctl\n"
                                     "echo \"${COMPREPLY[@]}\"\n";
  ASSERT_EQ(std::system(("bash " + dir_ + "/script >" + dir_ + "/completed").c_str()), 0);
  EXPECT_EQ(ReadFile(dir_ + "/completed"), "get\nnodes\n");
}

TEST_F(EngramctlTest, DoctorPrintsOneDocument) {
  const Outcome run = Run("doctor -o json");
  EXPECT_TRUE(Has(run.out, "\"checks\""));
  EXPECT_TRUE(Has(run.out, "\"io_uring\""));
  EXPECT_EQ(run.code, Has(run.out, "\"fail\"") ? 1 : 0);
  EXPECT_EQ(Run("doctor --endpoint 127.0.0.1:1").code, 1);
}

}  // namespace
}  // namespace engram::ctl
