// Reads that must not work: ranges, keys, tokens and incarnations that were not granted.

#include "tests/conformance/suite.h"

namespace engram::fabric::conformance {
namespace {

constexpr MemoryPlace kRefusedRows{0, 4096, std::uint64_t{kRow} * 1000, kRow};

// The node looks at the session of every read: neither bearer keys nor mapped memory.
bool ChecksSessions(const FabricInfo& info) {
  return info.kind == FabricKind::kStream || info.kind == FabricKind::kLoopback ||
         (info.kind == FabricKind::kUcx && info.wrong_key == WrongKey::kFailsRead);
}

class RefusalTest : public FabricTest {
 protected:
  // Reads one row of `region`, alone; kRefused when Import already says no.
  ReadStatus ReadOne(Client& client, const RemoteRegion& region, std::uint64_t offset = 0) {
    auto queue = OpenQueue(client);
    Landing landing(*client.fabric, kRow);
    ReadOp op;
    op.region = region;
    op.offset = offset;
    op.length = kRow;
    op.local[0] = landing.At(0, kRow);
    const ReadStatus status = ReadAll(*queue, {&op, 1})[0];
    if (status != ReadStatus::kOk) {
      EXPECT_TRUE(landing.IsAll(Landing::kUntouched));
    }
    return status;
  }
  // Mapped memory is reachable once it is mapped, and what is mapped is asked for.
  bool ImportsBySession(const FabricInfo& info) const {
    return info.kind == FabricKind::kMapped && rig().asks_target();
  }
  ReadStatus ImportAndReadOne(Client& client, const RemoteRegion& granted,
                              std::uint64_t offset = 0) {
    auto region = client.fabric->Import(granted);
    if (!region.ok()) return ReadStatus::kRefused;
    const ReadStatus status = ReadOne(client, *region, offset);
    client.fabric->Release(*region);
    return status;
  }
};

TEST_P(RefusalTest, RefusesARangeOutsideTheGrant) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRefusedRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 8 * kRow);
  const std::uint64_t length = rows.region.length;
  std::vector<ReadOp> ops;
  for (std::uint64_t offset : {length, length - kRow + 1, length - kRow + kRow / 2, length + kRow,
                               std::uint64_t{0} - kRow, std::uint64_t{1} << 63}) {
    ops.push_back(RowRead(rows, offset, kRow, ops.size(), landing.At(ops.size() * kRow, kRow)));
  }
  ops.push_back(RowRead(rows, 0, kRow, ops.size(), landing.At(ops.size() * kRow, kRow)));
  const auto statuses = ReadAll(*queue, ops);
  for (std::size_t i = 0; i + 1 < ops.size(); ++i) {
    EXPECT_EQ(statuses[i], ReadStatus::kRefused) << "offset " << ops[i].offset;
  }
  EXPECT_EQ(landing.Bytes(0, (ops.size() - 1) * kRow),
            std::vector<std::byte>((ops.size() - 1) * kRow, Landing::kUntouched));
  ExpectAllRight(rows, std::span(&ops.back(), 1), {statuses.back()});
}

// A reader that lies about the length of what it was granted.
TEST_P(RefusalTest, RefusesAGrantThatTheReaderStretched) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRefusedRows);
  RemoteRegion stretched = rows.as_given;
  stretched.length += 10 * kRow;
  EXPECT_NE(ImportAndReadOne(client, stretched, rows.as_given.length), ReadStatus::kOk);
}

TEST_P(RefusalTest, AWrongKeyReadsNothing) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRefusedRows);
  RemoteRegion wrong = rows.as_given;
  wrong.key ^= 0x5555;
  EXPECT_NE(ImportAndReadOne(client, wrong), ReadStatus::kOk);
  // What the wrong key cost is over: the peer can be read again.
  EXPECT_EQ(ReadOne(client, rows.region), ReadStatus::kOk);
}

TEST_P(RefusalTest, AWrongKeyFailsNoOtherRead) {
  auto node = StartNode();
  Client client = Connect(*node);
  if (client.fabric->info().wrong_key != WrongKey::kFailsRead) {
    GTEST_SKIP() << "a wrong key costs more than one read, or is not seen";
  }
  const Granted rows = Grant(*node, client, kRefusedRows);
  auto queue = OpenQueue(client);
  Landing landing(*client.fabric, 48 * kRow);
  auto ops = RandomRows(rows, landing, 48, 1);
  ops[20].region.key ^= 1;
  const auto statuses = ReadAll(*queue, ops);
  EXPECT_EQ(statuses[20], ReadStatus::kRefused);
  ExpectAllRight(rows, std::span(ops).first(20), {statuses.begin(), statuses.begin() + 20});
  ExpectAllRight(rows, std::span(ops).subspan(21), {statuses.begin() + 21, statuses.end()});
}

TEST_P(RefusalTest, RefusesARegionGrantedToAnotherSessionOnly) {
  auto node = StartNode();
  Client owner = Connect(*node);
  Client other = Connect(*node);
  if (!ChecksSessions(owner.fabric->info()) && !ImportsBySession(owner.fabric->info())) {
    GTEST_SKIP() << "keys are bearer tokens";
  }
  const Granted rows = Grant(*node, owner, kRefusedRows);
  RemoteRegion stolen = rows.as_given;
  stolen.peer = other.peer;
  EXPECT_EQ(ImportAndReadOne(other, stolen), ReadStatus::kRefused);
  EXPECT_EQ(ReadOne(owner, rows.region), ReadStatus::kOk);
}

TEST_P(RefusalTest, RefusesAfterDisallow) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRefusedRows);
  ASSERT_EQ(ReadOne(client, rows.region), ReadStatus::kOk);
  node->Disallow(client.token, rows.as_given.key);
  if (ChecksSessions(client.fabric->info())) {
    EXPECT_EQ(ReadOne(client, rows.region), ReadStatus::kRefused);
  }
  if (ImportsBySession(client.fabric->info())) {
    EXPECT_FALSE(client.fabric->Import(rows.as_given).ok());
  }
}

TEST_P(RefusalTest, RefusesWhatIsHidden) {
  auto node = StartNode();
  Client client = Connect(*node);
  const Granted rows = Grant(*node, client, kRefusedRows);
  const Granted others = Grant(*node, client, {1, 0, kRow * 100, kRow});
  ASSERT_EQ(ReadOne(client, rows.region), ReadStatus::kOk);
  node->Hide(rows.as_given.key);
  node->Hide(rows.as_given.key);
  node->Hide(12345);
  if (client.fabric->info().wrong_key == WrongKey::kUndetected) {
    EXPECT_FALSE(client.fabric->Import(rows.as_given).ok());
  } else {
    EXPECT_NE(ReadOne(client, rows.region), ReadStatus::kOk);
  }
  EXPECT_EQ(ReadOne(client, others.region), ReadStatus::kOk);
}

// A client that goes on reading what was taken back loses its connection at most, and nobody else
// loses anything: the other client reads in the middle of it.
TEST_P(RefusalTest, ARetiredRegionCostsOnlyItsReader) {
  auto node = StartNode();
  Client late = Connect(*node);
  if (late.fabric->info().provider == "shm") {
    GTEST_SKIP() << "a batch of reads of a retired region over shm ends only when it is abandoned";
  }
  Client other = Connect(*node);
  const Granted retired = Grant(*node, late, kRefusedRows);
  const Granted kept = Grant(*node, other, {1, 0, kRow * 1000, kRow});
  auto late_queue = OpenQueue(late);
  auto other_queue = OpenQueue(other);
  Landing late_landing(*late.fabric, 24 * kRow);
  Landing other_landing(*other.fabric, 24 * kRow);
  const auto late_ops = RandomRows(retired, late_landing, 24, 1);
  const auto other_ops = RandomRows(kept, other_landing, 24, 2);
  ExpectAllRight(retired, late_ops, ReadAll(*late_queue, late_ops));
  ExpectAllRight(kept, other_ops, ReadAll(*other_queue, other_ops));
  node->Hide(retired.as_given.key);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    late_landing.Fill(Landing::kUntouched);
    if (late.fabric->info().wrong_key != WrongKey::kUndetected) {
      SCOPED_TRACE("the reader of what is retired");
      for (ReadStatus status : ReadAll(*late_queue, late_ops)) EXPECT_NE(status, ReadStatus::kOk);
      EXPECT_TRUE(late_landing.IsAll(Landing::kUntouched));
    }
    ExpectAllRight(kept, other_ops, ReadAll(*other_queue, other_ops));
  }
}

TEST_P(RefusalTest, ADismissedSessionReadsNothingAndImportsNothing) {
  auto node = StartNode();
  Client client = Connect(*node);
  Client other = Connect(*node);
  const FabricKind kind = client.fabric->info().kind;
  if (!ChecksSessions(client.fabric->info()) && !ImportsBySession(client.fabric->info())) {
    GTEST_SKIP() << "keys are bearer tokens";
  }
  const Granted rows = Grant(*node, client, kRefusedRows);
  const Granted others = Grant(*node, other, kRefusedRows);
  ASSERT_EQ(ReadOne(client, rows.region), ReadStatus::kOk);
  node->Dismiss(client.token);
  if (kind != FabricKind::kMapped) {
    EXPECT_NE(ReadOne(client, rows.region), ReadStatus::kOk);
  }
  EXPECT_NE(ImportAndReadOne(client, others.as_given), ReadStatus::kOk);
  EXPECT_FALSE(client.fabric->AddPeer(AddressOf(*node, client.token), Soon()).ok());
  EXPECT_EQ(ReadOne(other, others.region), ReadStatus::kOk);
}

TEST_P(RefusalTest, RefusesAnUnknownToken) {
  auto node = StartNode();
  Client client = Connect(*node);
  if (client.fabric->info().kind == FabricKind::kOfi || !rig().asks_target()) {
    GTEST_SKIP() << "keys are bearer tokens";
  }
  const auto peer =
      client.fabric->AddPeer(AddressOf(*node, random_.Bits<SessionTokenTag>()), Soon());
  EXPECT_TRUE(absl::IsPermissionDenied(peer.status())) << peer.status();
}

TEST_P(RefusalTest, RefusesAnotherIncarnation) {
  auto node = StartNode();
  Client client = Connect(*node);
  if (client.fabric->info().kind == FabricKind::kOfi) {
    GTEST_SKIP() << "each incarnation has an endpoint address of its own";
  }
  const auto peer = client.fabric->AddPeer(AddressOf(*node, client.token, Incarnation(6)), Soon());
  EXPECT_TRUE(absl::IsFailedPrecondition(peer.status())) << peer.status();
}

TEST_P(RefusalTest, RefusesMemoryThatIsNotInTheSlab) {
  auto node = StartNode();
  EXPECT_FALSE(node->Expose({0, kSlabBytes, 1, 1}).ok());
  EXPECT_FALSE(node->Expose({0, 4096, kSlabBytes, 1}).ok());
  EXPECT_FALSE(node->Expose({0, ~std::uint64_t{0}, 2, 1}).ok());
}

TEST_P(RefusalTest, KeysAreNeverUsedTwice) {
  auto node = StartNode();
  const auto first = node->Expose(kRefusedRows);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto same = node->Expose(kRefusedRows);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_NE(first->key, same->key);
  node->Hide(first->key);
  const auto later = node->Expose(kRefusedRows);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_NE(later->key, first->key);
  EXPECT_NE(later->key, same->key);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RefusalTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace
}  // namespace engram::fabric::conformance
