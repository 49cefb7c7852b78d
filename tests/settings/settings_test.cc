#include "engram/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engram/settings/nearest.h"

namespace engram {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Program TestProgram() {
  return {"engram-test",
          "a program of the tests",
          "1.2.3",
          {Setting::Text("listen", "127.0.0.1:7700", "Where to listen."),
           Setting::Bool("insecure_listen", "false", "Allow it."),
           Setting::Integer("threads", "2", "How many.", "1", "64"),
           Setting::Size("arena_bytes", "64MiB", "How much.", "1MiB"),
           Setting::Time("dead_after", "5s", "When.", "100ms", "1h"),
           Setting::List("fabrics", "mapped,stream", "Which."),
           Setting::Choice("log_level", "info", "What.", {"debug", "info"})}};
}

class SettingsTest : public ::testing::Test {
 protected:
  absl::StatusOr<Settings> Load(std::vector<std::string> arguments = {}) {
    return LoadSettings(TestProgram(), arguments, [this](const std::string& name) {
      const auto it = variables_.find(name);
      return it == variables_.end() ? std::nullopt : std::optional<std::string>(it->second);
    });
  }
  std::string File(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/settings_test_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                             std::to_string(files_++) + ".yaml";
    std::ofstream(path) << text;
    return path;
  }
  std::string ErrorOf(std::vector<std::string> arguments) {
    const auto settings = Load(std::move(arguments));
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(settings.status().message());
  }

  std::map<std::string, std::string> variables_;
  int files_ = 0;
};

TEST_F(SettingsTest, DefaultsHold) {
  const auto settings = Load();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->Text("listen"), "127.0.0.1:7700");
  EXPECT_FALSE(settings->Bool("insecure_listen"));
  EXPECT_EQ(settings->Integer("threads"), 2);
  EXPECT_EQ(settings->Size("arena_bytes"), std::uint64_t{64} << 20);
  EXPECT_EQ(settings->Time("dead_after"), std::chrono::seconds(5));
  EXPECT_THAT(settings->List("fabrics"), ElementsAre("mapped", "stream"));
  EXPECT_EQ(settings->Text("log_level"), "info");
}

TEST_F(SettingsTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string file = File("threads: 3\narena_bytes: 2MiB\ndead_after: 6s\n");
  variables_["ENGRAM_ARENA_BYTES"] = "3MiB";
  variables_["ENGRAM_DEAD_AFTER"] = "7s";
  const auto settings = Load({"--config", file, "--dead-after=8s"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->Integer("threads"), 3);
  EXPECT_EQ(settings->Size("arena_bytes"), std::uint64_t{3} << 20);
  EXPECT_EQ(settings->Time("dead_after"), std::chrono::seconds(8));
  EXPECT_EQ(settings->OriginOf("listen"), Settings::Origin::kDefault);
  EXPECT_EQ(settings->OriginOf("threads"), Settings::Origin::kFile);
  EXPECT_EQ(settings->OriginOf("arena_bytes"), Settings::Origin::kEnvironment);
  EXPECT_EQ(settings->OriginOf("dead_after"), Settings::Origin::kFlag);
  EXPECT_THAT(settings->Print(), HasSubstr("dead_after: 8s  # --dead-after"));
  EXPECT_THAT(settings->Print(), HasSubstr("arena_bytes: 3MiB  # ENGRAM_ARENA_BYTES"));
}

TEST_F(SettingsTest, PrintedSettingsReadBackAsAFile) {
  const auto first =
      Load({"--fabrics=mapped", "--fabrics", "ofi", "--threads=9", "--listen=a: #b"});
  ASSERT_TRUE(first.ok());
  const auto second = Load({"--config", File(first->Print())});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->Integer("threads"), 9);
  EXPECT_EQ(second->Text("listen"), "a: #b");
  EXPECT_THAT(second->List("fabrics"), ElementsAre("mapped", "ofi"));
}

TEST_F(SettingsTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(ErrorOf({"--config", File("listne: x\n")}), HasSubstr("did you mean listen?"));
  EXPECT_THAT(ErrorOf({"--dead-afetr=1s"}), HasSubstr("did you mean --dead-after?"));
  EXPECT_THAT(ErrorOf({"--quite-other"}), HasSubstr("engram-test --help"));
}

TEST_F(SettingsTest, ErrorsNameKeyValueLimitAndNextStep) {
  EXPECT_THAT(ErrorOf({"--threads=65"}), ::testing::AllOf(HasSubstr("threads"), HasSubstr("65"),
                                                          HasSubstr("64"), HasSubstr("--threads")));
  EXPECT_THAT(ErrorOf({"--arena-bytes", "1KiB"}), HasSubstr("1MiB"));
  EXPECT_THAT(ErrorOf({"--dead-after", "soon"}), HasSubstr("as in 10s"));
  EXPECT_THAT(ErrorOf({"--log-level", "loud"}), HasSubstr("debug, info"));
  EXPECT_THAT(ErrorOf({"--insecure-listen=perhaps"}), HasSubstr("neither true nor false"));
  EXPECT_THAT(ErrorOf({"--listen"}), HasSubstr("has no value"));
  EXPECT_THAT(ErrorOf({"stray"}), HasSubstr("is not a flag"));
}

TEST_F(SettingsTest, BadFilesAreNamed) {
  EXPECT_THAT(ErrorOf({"--config", "/no/such/file"}), HasSubstr("/no/such/file"));
  EXPECT_THAT(ErrorOf({"--config", File("a: [1\n")}), HasSubstr("is not YAML"));
  EXPECT_THAT(ErrorOf({"--config", File("- a\n- b\n")}), HasSubstr("key: value"));
  EXPECT_THAT(ErrorOf({"--config", File("threads: {a: 1}\n")}), HasSubstr("one plain value"));
  EXPECT_TRUE(Load({"--config", File("")}).ok());
}

class ExitTest : public ::testing::Test {
 protected:
  std::variant<Settings, int> Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "engram-test");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    Program program = TestProgram();
    program.check = check_;
    return LoadSettingsOrExit(program, static_cast<int>(argv.size()), argv.data(), out_, err_);
  }
  std::function<absl::Status(const Settings&)> check_;
  std::ostringstream out_, err_;
};

TEST_F(ExitTest, CheckConfigExitsZeroOrTwo) {
  EXPECT_EQ(std::get<int>(Run({"--check-config"})), 0);
  EXPECT_EQ(std::get<int>(Run({"--check-config", "--threads=0"})), 2);
  EXPECT_THAT(err_.str(), HasSubstr("engram-test: setting threads"));
  check_ = [](const Settings&) { return absl::InvalidArgumentError("they do not fit together"); };
  EXPECT_EQ(std::get<int>(Run({"--check-config"})), 2);
  EXPECT_THAT(err_.str(), HasSubstr("engram-test: they do not fit together"));
}

TEST_F(ExitTest, PrintConfigShowsEverySetting) {
  EXPECT_EQ(std::get<int>(Run({"--print-config"})), 0);
  for (const Setting& setting : TestProgram().settings) {
    EXPECT_THAT(out_.str(), HasSubstr(setting.key + ": "));
  }
}

TEST_F(ExitTest, HelpShowsFlagsAndDefaults) {
  EXPECT_EQ(std::get<int>(Run({"--help"})), 0);
  EXPECT_THAT(out_.str(), HasSubstr("--dead-after DURATION"));
  EXPECT_THAT(out_.str(), HasSubstr("[5s]"));
}

TEST_F(ExitTest, GoesOnWithGoodSettings) {
  const auto result = Run({"--threads", "4", "--insecure-listen", "false"});
  ASSERT_TRUE(std::holds_alternative<Settings>(result));
  EXPECT_EQ(std::get<Settings>(result).Integer("threads"), 4);
  EXPECT_FALSE(std::get<Settings>(result).Bool("insecure_listen"));
  const auto bare = Run({"--insecure-listen", "--threads", "4"});
  EXPECT_TRUE(std::get<Settings>(bare).Bool("insecure_listen"));
}

TEST(NearestWordTest, CountsSwapsAsOneEdit) {
  const std::vector<std::string> known = {"tables", "shards", "nodes"};
  EXPECT_EQ(NearestWord("tabels", known), "tables");
  EXPECT_EQ(NearestWord("node", known), "nodes");
  EXPECT_EQ(NearestWord("xyz", known), "");
}

}  // namespace
}  // namespace engram
