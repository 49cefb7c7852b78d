#include "bench/replay.h"

#include <algorithm>

#include "checkout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace engram::bench {
namespace {

ReplayOptions Tang(std::uint64_t seed = 1) {
  const std::string traces = std::string(ENGRAM_SOURCE_DIR) + "/bench/traces/";
  ReplayOptions options;
  options.trace = traces + "tokens_tang300.u32.zst";
  options.arrivals = traces + "arrivals_conversation.jsonl.zst";
  options.seed = seed;
  return options;
}

Replay Open(const ReplayOptions& options) {
  auto replay = Replay::Open(options);
  EXPECT_TRUE(replay.ok()) << replay.status();
  return *std::move(replay);
}

TEST(Replay, SameSeedGivesTheSameSteps) {
  Replay a = Open(Tang(5)), b = Open(Tang(5)), c = Open(Tang(6));
  bool differs = false;
  for (int i = 0; i < 200; ++i) {
    const Step &x = a.Next(), &y = b.Next(), &z = c.Next();
    ASSERT_EQ(x.kind, y.kind);
    ASSERT_EQ(x.parts.size(), y.parts.size());
    for (std::size_t p = 0; p < x.parts.size(); ++p) {
      ASSERT_TRUE(std::ranges::equal(x.parts[p].tokens, y.parts[p].tokens));
      differs |= p >= z.parts.size() || !std::ranges::equal(x.parts[p].tokens, z.parts[p].tokens);
    }
  }
  EXPECT_TRUE(differs);
}

TEST(Replay, PrefillComesInChunksThatContinueWithLookback) {
  Replay replay = Open(Tang());
  const Step first = replay.Next();
  ASSERT_EQ(first.kind, Step::Kind::kPrefill);
  EXPECT_EQ(first.tokens, kPrefillChunk);  // the first arrival has 6,758 tokens
  EXPECT_TRUE(first.parts[0].lookback.empty());
  const Step second = replay.Next();
  EXPECT_EQ(second.tokens, 6758u - kPrefillChunk);
  ASSERT_EQ(second.parts[0].lookback.size(), kLookback);
  EXPECT_EQ(second.parts[0].lookback.data() + kLookback, second.parts[0].tokens.data());
}

TEST(Replay, DecodesOneTokenEachUpToTheBatch) {
  ReplayOptions options = Tang();
  options.decode_batch = 8;
  Replay replay = Open(options);
  std::size_t largest = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Step& step = replay.Next();
    if (step.kind != Step::Kind::kDecode) continue;
    ASSERT_EQ(step.tokens, step.parts.size());
    largest = std::max(largest, step.parts.size());
  }
  EXPECT_EQ(largest, 8u);
}

TEST(Replay, NamesAFileThatIsMissingOrDamaged) {
  ReplayOptions options = Tang();
  options.trace = "/nowhere/x.zst";
  EXPECT_THAT(std::string(Replay::Open(options).status().message()),
              testing::HasSubstr("/nowhere/x.zst"));
  options.trace = options.arrivals = std::string(ENGRAM_SOURCE_DIR) + "/README.md";
  EXPECT_FALSE(Replay::Open(options).ok());
}

}  // namespace
}  // namespace engram::bench
