// Late landing, on every fabric under the fault decorator: replies come 100 ms after the caller has
// abandoned the peer and taken its buffer back. The clock is the test's.

#include "fabric/fault/fault_fabric.h"
#include "tests/conformance/suite.h"

namespace engram::fabric::conformance {
namespace {

constexpr MemoryPlace kLateRows{0, 0, std::uint64_t{kRow} * 4000, kRow};
constexpr std::byte kReused{0xaa};
constexpr Duration kLate = std::chrono::milliseconds(100);

class LateTest : public FabricTest {
 protected:
  // The client of `node`, behind a fabric that delivers kLate late.
  Client ConnectLate(Node& node) {
    Client client = Connect(node);
    FaultOptions options;
    options.delay_min = options.delay_max = kLate;
    client.fabric = std::make_unique<FaultFabric>(std::move(client.fabric), options, clock_);
    return client;
  }
  FakeClock clock_;
};

TEST_P(LateTest, NothingLandsAndNothingEndsBeforeItsTime) {
  auto node = StartNode();
  Client client = ConnectLate(*node);
  const Granted rows = Grant(*node, client, kLateRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 48 * kRow);
  const auto ops = RandomRows(rows, landing, 48, 1);
  SubmitAll(*queue, ops);
  clock_.Advance(kLate - Duration(1));
  EXPECT_EQ(PollFor(*queue, std::chrono::milliseconds(5)), 0u);
  EXPECT_TRUE(landing.IsAll(Landing::kUntouched));
  clock_.Advance(Duration(1));
  ExpectAllRight(rows, ops, Collect(*queue, ops.size()));
}

TEST_P(LateTest, NoByteLandsAfterAbandon) {
  auto node = StartNode();
  Client client = ConnectLate(*node);
  const Granted rows = Grant(*node, client, kLateRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 300 * kRow);
  for (std::uint64_t round = 0; round < 5; ++round) {
    landing.Fill(Landing::kUntouched);
    const auto ops = RandomRows(rows, landing, 300, round);
    SubmitAll(*queue, ops);
    if (round % 2 == 1) PollFor(*queue, std::chrono::milliseconds(2));  // the replies are here
    queue->Abandon(client.peer);
    landing.Fill(kReused);
    for (ReadStatus status : Collect(*queue, ops.size())) EXPECT_EQ(status, ReadStatus::kFlushed);
    clock_.Advance(2 * kLate);
    EXPECT_EQ(PollFor(*queue, std::chrono::milliseconds(5)), 0u);
    EXPECT_TRUE(landing.IsAll(kReused)) << "round " << round;
  }
}

TEST_P(LateTest, NoByteLandsAfterClose) {
  auto node = StartNode();
  Client client = ConnectLate(*node);
  const Granted rows = Grant(*node, client, kLateRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 100 * kRow);
  const auto ops = RandomRows(rows, landing, 100, 1);
  SubmitAll(*queue, ops);
  queue->Close();
  landing.Fill(kReused);
  clock_.Advance(2 * kLate);
  EXPECT_EQ(PollFor(*queue, std::chrono::milliseconds(5)), 0u);
  EXPECT_TRUE(landing.IsAll(kReused));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, LateTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace
}  // namespace engram::fabric::conformance
