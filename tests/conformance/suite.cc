#include "tests/conformance/suite.h"

#include <sched.h>
#include <string.h>

#include <algorithm>

namespace engram::fabric::conformance {

std::vector<std::byte> Granted::Expected(std::uint64_t offset, std::uint64_t length) const {
  std::vector<std::byte> bytes(length);
  for (std::uint64_t i = 0; i < length; ++i) {
    bytes[i] = PatternByte(incarnation, place.slab, place.offset + offset + i);
  }
  return bytes;
}

Landing::Landing(Fabric& fabric, std::uint64_t bytes) {
  auto buffer = HostBuffer::Create(bytes);
  if (!buffer.ok()) ADD_FAILURE() << buffer.status();
  buffer_ = *std::move(buffer);
  Fill(kUntouched);
  if (!fabric.info().needs_registration) return;
  auto region = fabric.Register(buffer_.bytes(), {});
  if (!region.ok()) ADD_FAILURE() << region.status();
  region_ = *std::move(region);
}

std::vector<std::byte> Landing::Bytes(std::uint64_t offset, std::uint64_t length) {
  const auto part = buffer_.bytes().subspan(offset, length);
  return {part.begin(), part.end()};
}

void Landing::Fill(std::byte value) {
  std::fill(buffer_.bytes().begin(), buffer_.bytes().end(), value);
}

bool Landing::IsAll(std::byte value) {
  const auto bytes = buffer_.bytes();
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
}

ReadOp RowRead(const Granted& from, std::uint64_t offset, std::uint32_t length,
               std::uint64_t cookie, LocalSegment to) {
  ReadOp op;
  op.region = from.region;
  op.offset = offset;
  op.cookie = cookie;
  op.length = length;
  op.local[0] = to;
  return op;
}

void FabricTest::SetUp() {
  if (const std::string why = rig().absent(); !why.empty()) GTEST_SKIP() << why;
}

std::unique_ptr<Node> FabricTest::StartNode(Where where, Incarnation incarnation,
                                            const std::string& address) {
  const TargetPlace place{NodeId{"node-a"}, incarnation, address};
  auto node = where == Where::kHere ? StartNodeHere(rig(), place) : StartNodeInChild(rig(), place);
  if (!node.ok()) {
    ADD_FAILURE() << node.status();
    return nullptr;
  }
  return *std::move(node);
}

PeerAddress FabricTest::AddressOf(const Node& node, const SessionToken& token,
                                  Incarnation incarnation) const {
  return {node.address(), token, NodeId{"node-a"}, incarnation};
}

Client FabricTest::Connect(Node& node, Incarnation incarnation) {
  Client client;
  auto fabric = rig().OpenFabric();
  if (!fabric.ok()) {
    ADD_FAILURE() << fabric.status();
    return client;
  }
  client.fabric = *std::move(fabric);
  client.token = random_.Bits<SessionTokenTag>();
  node.Admit(client.token);
  auto peer = client.fabric->AddPeer(AddressOf(node, client.token, incarnation), Soon());
  if (!peer.ok()) {
    ADD_FAILURE() << peer.status();
    return client;
  }
  client.peer = *peer;
  return client;
}

Granted FabricTest::Grant(Node& node, Client& client, const MemoryPlace& place,
                          Incarnation incarnation) {
  Granted granted{{}, {}, incarnation, place};
  auto exposed = node.Expose(place);
  if (!exposed.ok()) {
    ADD_FAILURE() << exposed.status();
    return granted;
  }
  node.Allow(client.token, exposed->key);
  granted.as_given = {client.peer, exposed->address, exposed->length, exposed->key};
  auto imported = client.fabric->Import(granted.as_given);
  if (!imported.ok()) {
    ADD_FAILURE() << imported.status();
    return granted;
  }
  granted.region = *imported;
  return granted;
}

std::unique_ptr<ReadQueue> FabricTest::OpenQueue(Client& client, std::uint32_t depth) {
  auto queue = client.fabric->OpenQueue({depth, {}});
  if (!queue.ok()) {
    ADD_FAILURE() << queue.status();
    return nullptr;
  }
  return *std::move(queue);
}

std::vector<ReadStatus> FabricTest::ReadAll(ReadQueue& queue, std::span<const ReadOp> ops) {
  std::vector<ReadStatus> statuses(ops.size(), ReadStatus::kTimedOut);
  std::size_t submitted = 0, ended = 0;
  ReadCompletion done[64];
  const Instant limit = Soon();
  while (ended < ops.size()) {
    if (submitted < ops.size()) submitted += queue.Submit(ops.subspan(submitted));
    const std::size_t count = queue.Poll(done);
    for (std::size_t i = 0; i < count; ++i) statuses.at(done[i].cookie) = done[i].status;
    ended += count;
    if (count > 0) continue;
    if (SystemClock::Get().Now() > limit) {
      ADD_FAILURE() << ended << " of " << ops.size() << " reads ended";
      break;
    }
    sched_yield();  // the target may share this core
  }
  return statuses;
}

void FabricTest::SubmitAll(ReadQueue& queue, std::span<const ReadOp> ops) {
  std::size_t submitted = 0;
  for (int tries = 0; submitted < ops.size() && tries < 1000; ++tries) {
    submitted += queue.Submit(ops.subspan(submitted));
  }
  ASSERT_EQ(submitted, ops.size());
}

std::vector<ReadStatus> FabricTest::Collect(ReadQueue& queue, std::size_t count) {
  std::vector<ReadStatus> statuses(count, ReadStatus::kTimedOut);
  const Instant limit = Soon();
  for (std::size_t ended = 0; ended < count;) {
    ReadCompletion done;
    if (queue.Poll({&done, 1}) == 1) {
      statuses.at(done.cookie) = done.status;
      ++ended;
    } else if (SystemClock::Get().Now() > limit) {
      ADD_FAILURE() << ended << " of " << count << " reads ended";
      break;
    } else {
      sched_yield();
    }
  }
  return statuses;
}

std::size_t FabricTest::PollFor(ReadQueue& queue, Duration time) {
  const Instant end = SystemClock::Get().Now() + time;
  std::size_t ended = 0;
  ReadCompletion done[16];
  while (SystemClock::Get().Now() < end) {
    ended += queue.Poll(done);
    sched_yield();
  }
  return ended;
}

std::vector<ReadOp> FabricTest::RandomRows(const Granted& from, Landing& landing, std::size_t count,
                                           std::uint64_t seed) {
  SeededRandom random(seed);
  const std::uint64_t rows = from.region.length / kRow;
  std::vector<ReadOp> ops;
  for (std::size_t i = 0; i < count; ++i) {
    ops.push_back(RowRead(from, random.Below(rows) * kRow, kRow, i, landing.At(i * kRow, kRow)));
  }
  return ops;
}

void FabricTest::ExpectAllRight(const Granted& from, std::span<const ReadOp> ops,
                                const std::vector<ReadStatus>& statuses) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ASSERT_EQ(statuses[i], ReadStatus::kOk) << "read " << i << ": " << Name(statuses[i]);
    std::vector<std::byte> got;
    for (std::uint8_t s = 0; s < ops[i].segments; ++s) {
      const LocalSegment& part = ops[i].local[s];
      got.insert(got.end(), part.data, part.data + part.bytes);
    }
    ASSERT_EQ(got, from.Expected(ops[i].offset, ops[i].length)) << "read " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricTest, testing::ValuesIn(AllRigs()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace engram::fabric::conformance
