// What the tests of the suite share: a node, a session with it, landing memory, whole batches.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engram/clock.h"
#include "engram/random.h"
#include "engram/read_status.h"
#include "fabric/fabric.h"
#include "fabric/memory.h"
#include "tests/conformance/node.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {

inline constexpr std::uint32_t kRow = 264;

// A region as the reader holds it, and what lies there.
struct Granted {
  RemoteRegion region;    // imported
  RemoteRegion as_given;  // before Import
  Incarnation incarnation;
  MemoryPlace place;

  // What `length` bytes at `offset` of the region must be.
  std::vector<std::byte> Expected(std::uint64_t offset, std::uint64_t length) const;
};

// Landing memory of one client, registered where the fabric wants it; filled with 0xEE.
class Landing {
 public:
  static constexpr std::byte kUntouched{0xee};
  Landing(Fabric& fabric, std::uint64_t bytes);

  std::byte* data() { return buffer_.bytes().data(); }
  LocalSegment At(std::uint64_t offset, std::uint32_t bytes) {
    return {data() + offset, bytes, region_.get()};
  }
  std::vector<std::byte> Bytes(std::uint64_t offset, std::uint64_t length);
  void Fill(std::byte value);
  bool IsAll(std::byte value);

 private:
  HostBuffer buffer_;
  std::unique_ptr<MemoryRegion> region_;
};

ReadOp RowRead(const Granted& from, std::uint64_t offset, std::uint32_t length,
               std::uint64_t cookie, LocalSegment to);

// One client process in small: a fabric, a session with a node.
struct Client {
  std::unique_ptr<Fabric> fabric;
  SessionToken token;
  PeerId peer;
};

class FabricTest : public testing::TestWithParam<const Rig*> {
 protected:
  enum class Where { kHere, kChild };
  static constexpr Duration kPatience = std::chrono::seconds(20);

  void SetUp() override;

  std::unique_ptr<Node> StartNode(Where where = Where::kHere,
                                  Incarnation incarnation = Incarnation(7),
                                  const std::string& address = "");
  PeerAddress AddressOf(const Node& node, const SessionToken& token,
                        Incarnation incarnation = Incarnation(7)) const;
  // A new fabric with a session of `node`.
  Client Connect(Node& node, Incarnation incarnation = Incarnation(7));
  // Exposes, allows and imports.
  Granted Grant(Node& node, Client& client, const MemoryPlace& place,
                Incarnation incarnation = Incarnation(7));
  std::unique_ptr<ReadQueue> OpenQueue(Client& client, std::uint32_t depth = 4096);

  // Submits all of `ops`, whose cookies must be 0..n-1, polling as needed; their statuses by
  // cookie. A read that does not end within kPatience fails the test.
  std::vector<ReadStatus> ReadAll(ReadQueue& queue, std::span<const ReadOp> ops);
  // Submits all of `ops` without polling: no more than the queue holds. Partial acceptance may need
  // several tries.
  void SubmitAll(ReadQueue& queue, std::span<const ReadOp> ops);
  // Polls until `count` reads have ended; statuses by cookie.
  std::vector<ReadStatus> Collect(ReadQueue& queue, std::size_t count);
  // Polls what comes within `time`; returns how many ended.
  std::size_t PollFor(ReadQueue& queue, Duration time);

  // `count` rows at pseudo-random strides of `from`, landing one after the other.
  std::vector<ReadOp> RandomRows(const Granted& from, Landing& landing, std::size_t count,
                                 std::uint64_t seed);
  // Each op ended with kOk and its bytes are right.
  void ExpectAllRight(const Granted& from, std::span<const ReadOp> ops,
                      const std::vector<ReadStatus>& statuses);

  const Rig& rig() const { return *GetParam(); }
  static Instant Soon() { return SystemClock::Get().Now() + kPatience; }
  SystemRandom random_;
};

}  // namespace engram::fabric::conformance
