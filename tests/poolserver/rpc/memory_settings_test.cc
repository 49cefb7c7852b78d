// Settings of the tiers of memory: what they mean together, and what is refused with which words.
#include "poolserver/rpc/memory_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "poolserver/rpc/pool_node_settings.h"

namespace engram::poolserver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<Arena::Options>> TiersOf(std::vector<std::string> arguments) {
  arguments.emplace_back("--huge-pages=off");
  const auto settings =
      LoadSettings(PoolServerProgram(), arguments, [](const std::string&) { return std::nullopt; });
  EXPECT_TRUE(settings.ok()) << settings.status();
  std::vector<std::shared_ptr<fabric::dax::OwnedDevice>> devices;
  return MemoryTiersFrom(*settings, &devices);
}

std::string Refusal(const std::vector<std::string>& arguments) {
  const auto tiers = TiersOf(arguments);
  EXPECT_FALSE(tiers.ok());
  return std::string(tiers.status().message());
}

TEST(MemorySettingsTest, MemoryAloneIsDram) {
  const auto tiers = TiersOf({"--memory=64MiB", "--memory-read-rate=1GiB"});
  ASSERT_TRUE(tiers.ok()) << tiers.status();
  ASSERT_EQ(tiers->size(), 1u);
  EXPECT_EQ(tiers->front().tier, Tier::kDram);
  EXPECT_EQ(tiers->front().capacity_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(tiers->front().read_bytes_per_second, std::uint64_t{1} << 30);
}

TEST(MemorySettingsTest, ANumaNodeIsTheCxlTierBesideDramOrAlone) {
  const auto both = TiersOf({"--memory=64MiB", "--cxl-memory=32MiB", "--cxl-numa-node=0"});
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ(both->at(1).tier, Tier::kCxl);
  EXPECT_EQ(both->at(1).numa_node, 0);
  EXPECT_EQ(both->at(1).capacity_bytes, std::uint64_t{32} << 20);
  EXPECT_EQ(both->at(1).capacity_setting, "--cxl-memory");
  EXPECT_EQ(both->at(0).numa_node, -1);
  const auto alone = TiersOf({"--memory=0", "--cxl-memory=32MiB", "--cxl-numa-node=0"});
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_EQ(alone->size(), 1u);
  EXPECT_EQ(alone->front().tier, Tier::kCxl);
}

TEST(MemorySettingsTest, RefusesHalfATierAndTwoFormsOfIt) {
  EXPECT_THAT(Refusal({"--cxl-memory=32MiB"}), HasSubstr("--cxl-numa-node"));
  EXPECT_THAT(Refusal({"--cxl-numa-node=0"}), HasSubstr("give --cxl-memory a size"));
  EXPECT_THAT(Refusal({"--cxl-numa-node=0", "--cxl-devices=/dev/dax9.9"}),
              HasSubstr("two forms of one tier"));
}

TEST(MemorySettingsTest, RefusesWhatIsNotThere) {
  EXPECT_THAT(Refusal({"--cxl-memory=32MiB", "--cxl-numa-node=1000"}),
              AllOf(HasSubstr("--cxl-memory"), HasSubstr("NUMA node 1000 does not exist")));
  EXPECT_THAT(Refusal({"--cxl-memory=64TiB", "--cxl-numa-node=0"}),
              HasSubstr("is more than NUMA node 0's"));
  EXPECT_THAT(Refusal({"--memory=64TiB"}), HasSubstr("--memory 64TiB is more than this machine's"));
  EXPECT_THAT(Refusal({"--cxl-devices=/dev/dax9.9"}),
              AllOf(HasSubstr("--cxl-devices"), HasSubstr("/dev/dax9.9")));
  EXPECT_THAT(Refusal({"--cxl-devices=/dev/null"}), HasSubstr("is not a DAX device"));
}

}  // namespace
}  // namespace engram::poolserver
