// The C++ face of the library against a real pool.
#include <poll.h>

#include <algorithm>
#include <engram/engram.hpp>
#include <thread>

#include "tests/abi/pool/opened.h"

namespace engram::abi_test {
namespace {

using std::chrono::seconds;

template <class Call>
void ExpectError(Call call, engram_status status, const char* says) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_THAT(std::string(error.what()), testing::HasSubstr(says));
  }
}

TEST(CppTest, ReadsStepsIntoTheSlotsOfADestination) {
  Pool pool = Pool::Open();
  Table table = pool.OpenTable("small@1");
  Layout layout;
  layout.max_tokens = 4;
  layout.order = ENGRAM_COLUMN_TOKEN_ROW;
  layout.split_planes = true;
  layout.first_column = 3;
  layout.column_step = 4;
  const engram_layout_info values = table.layout(layout), scales = table.layout(layout, 1);
  ASSERT_EQ(values.planes, 2u);
  ASSERT_EQ(values.columns, 6u);
  std::vector<std::byte> memory(2 * values.bytes);
  Destination moved = table.Register(memory);
  const Destination destination = std::move(moved);
  Prefetcher::Options options;
  options.poller = true;
  Prefetcher steps(table, options);
  const std::span<std::byte> second = std::span(memory).subspan(values.bytes);
  steps.AddSlot(layout, std::span(memory).first(values.bytes), &destination);
  const std::uint32_t slot = steps.AddSlot(layout, second, &destination);
  const std::vector<std::int64_t> tokens = {22898, 19737, 270};
  TokenInput input;
  input.tokens = tokens;
  const engram_ticket ticket =
      steps.Submit(slot, input, ENGRAM_STEP_VERIFY, /*timeout=*/seconds(60));
  steps.Wait(ticket, -1, seconds(60));
  const std::vector<std::int64_t> rows = table.Addresses(input);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(steps.State(ticket, layer), ENGRAM_LAYER_READY);
    EXPECT_FALSE(steps.Late(ticket, layer)) << "no time was given";
    const std::vector<std::uint8_t> status = steps.RowStatus(ticket, layer);
    EXPECT_EQ(std::count(status.begin(), status.end(), ENGRAM_ROW_OK), 3 * 6);
    for (std::size_t token = 0; token < 3; ++token) {
      for (std::size_t i = 0; i < 6; ++i) {
        const std::int64_t id = rows[(token * kLayers + layer) * kColumns + 3 + 4 * i];
        const auto golden = Golden(table.layer(layer).first_row + static_cast<std::uint64_t>(id));
        const auto at = [&](const engram_layout_info& plane) {
          return &second[plane.offset + layer * plane.layer_stride + token * plane.token_stride +
                         i * plane.column_stride];
        };
        EXPECT_EQ(std::memcmp(at(values), golden.data(), kValues), 0);
        EXPECT_EQ(std::memcmp(at(scales), golden.data() + kValues, kScales), 0);
      }
    }
  }
  steps.Release(ticket);
  EXPECT_EQ(table.stats().layers_ready, kLayers);
  const std::string metrics = Metrics();
  EXPECT_NE(metrics.find("table=\"small@1\",outcome=\"ready\"} " + std::to_string(kLayers) + "\n"),
            std::string::npos)
      << metrics;
  EXPECT_EQ(table.pending(), std::nullopt);
  pollfd event{table.pending_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&event, 1, 0), 0);
}

TEST(CppTest, AStepThatIsCancelledWhileItLandsIsPoisonAndTheNextOneArrives) {
  Pool::Options pool_options;
  pool_options.fabric = "stream";
  pool_options.spin = std::chrono::nanoseconds::max();
  Pool pool = Pool::Open(pool_options);
  Table table = pool.OpenTable("small@1");
  Prefetcher::Options options;
  options.poller = true;
  options.steps = 1;
  Prefetcher steps(table, options);
  PackedStep one({1, 2});
  one.step.timeout_ns = 60 * kSecond;
  const std::uint64_t needed[kLayers] = {1'000, 0};
  one.step.needed_in_ns = needed;
  {
    const StoppedNodes stopped;
    const engram_ticket ticket = steps.Submit(one.step);
    ExpectError([&] { steps.Submit(one.step); }, ENGRAM_RESOURCE_EXHAUSTED, "all 1 steps");
    ExpectError([&] { steps.Wait(ticket, 0, std::chrono::milliseconds(20)); },
                ENGRAM_DEADLINE_EXCEEDED, "is not there yet; its reads go on");
    EXPECT_EQ(steps.State(ticket, 0), ENGRAM_LAYER_PENDING);
    for (int i = 0; i < 6000 && !steps.Late(ticket, 0); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(steps.Late(ticket, 0));
    EXPECT_FALSE(steps.Late(ticket, 1)) << "there is no hurry";
    steps.Cancel(ticket, -1);
    ExpectError([&] { steps.Wait(ticket, 1, seconds(20)); }, ENGRAM_FAILED_PRECONDITION,
                "layer 1 of the step was cancelled");
    EXPECT_EQ(steps.State(ticket, 1), ENGRAM_LAYER_CANCELLED);
    EXPECT_TRUE(one.IsPoison());
    steps.Release(ticket);
    EXPECT_EQ(steps.State(ticket, 1), ENGRAM_LAYER_UNKNOWN);
  }
  const engram_ticket ticket = steps.Submit(one.step);
  steps.Wait(ticket, -1, seconds(60));
  Opened opened;
  EXPECT_TRUE(one.IsGolden(opened));
  const std::vector<std::uint8_t> status = steps.RowStatus(ticket, 1);
  EXPECT_EQ(std::count(status.begin(), status.end(), ENGRAM_ROW_OK), 2 * kColumns);
  steps.Release(ticket);
}

TEST(CppTest, AnAliasIsAdoptedBetweenTwoSteps) {
  ASSERT_TRUE(Engramctl("set alias small@cpp 1"));
  {
    Pool pool = Pool::Open();
    Table table = pool.OpenTable("small@cpp");
    ASSERT_TRUE(Engramctl("set alias small@cpp 2"));
    pollfd event{table.pending_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&event, 1, 60'000), 1);
    EXPECT_EQ(table.pending(), "small@2");
    Pool::TableOptions other;
    other.expected_spec_digest = "abc";
    ExpectError([&] { table.Adopt(other); }, ENGRAM_FAILED_PRECONDITION,
                "table small@2 has the spec digest ");
    Table adopted = table.Adopt();
    EXPECT_STREQ(table.info().version, "1");
    EXPECT_STREQ(adopted.info().version, "2");
    Prefetcher before(table, {}), after(adopted, {});
    PackedStep one({7}), two({7});
    one.step.timeout_ns = two.step.timeout_ns = 60 * kSecond;
    const engram_ticket first = before.Submit(one.step), second = after.Submit(two.step);
    before.Wait(first, -1, seconds(60));
    after.Wait(second, -1, seconds(60));
    Opened opened;
    EXPECT_TRUE(one.IsGolden(opened));
    EXPECT_TRUE(two.IsGolden(opened, kSecondSeed));
  }
  EXPECT_TRUE(Engramctl("delete alias small@cpp --yes"));
}

TEST(CppTest, FailuresAreErrorsWithTheirStatus) {
  Pool pool = Pool::Open();
  const Table table = pool.OpenTable("small@1");
  Layout layout;
  layout.max_tokens = 1;
  layout.first_column = 24;
  ExpectError([&] { table.layout(layout); }, ENGRAM_INVALID_ARGUMENT, "layout->first_column is 24");
  ExpectError([&] { table.Adopt(); }, ENGRAM_FAILED_PRECONDITION, "there is nothing to adopt");
  ExpectError([&] { pool.OpenTable("small@77"); }, ENGRAM_NOT_FOUND, "small@77");
}

}  // namespace
}  // namespace engram::abi_test
