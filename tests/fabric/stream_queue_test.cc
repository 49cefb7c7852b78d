// What a stream queue owes its caller when the target is slow, dies or answers strangely. The
// target here is written by hand, byte by byte.
#include "fabric/stream/stream_queue.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>
#include <vector>

#include "fabric/stream/stream_fabric.h"

namespace engram::fabric::stream {
namespace {

constexpr std::uint32_t kRow = 64;
constexpr std::byte kUntouched{0xee};

// Listens; the test tells it what to say.
class ScriptedTarget {
 public:
  ScriptedTarget() {
    const auto any = ParseAddress("127.0.0.1:0");
    listener_ = *Listen(*any, "127.0.0.1:0");
    address_ = BoundAddress(listener_.get(), *any, "");
  }
  const std::string& address() const { return address_; }

  // Accepts one connection and answers its hello.
  void Welcome(HelloResult result = HelloResult::kWelcome) {
    pollfd wait{listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 20'000), 1);
    connection_ = Descriptor(accept(listener_.get(), nullptr, nullptr));
    std::byte hello[kHelloBytes];
    ASSERT_EQ(recv(connection_.get(), hello, sizeof hello, MSG_WAITALL), ssize_t{kHelloBytes});
    WriteHelloReply({result, Incarnation(3)}, hello);
    Say(hello);
  }
  // Receives one request of `rows` rows and one key; returns its id.
  std::uint64_t HearRequest(std::uint32_t rows) {
    std::vector<std::byte> bytes(kRequestHeaderBytes + rows * 8 + 8);
    EXPECT_EQ(recv(connection_.get(), bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    RequestView view;
    EXPECT_EQ(ParseRequest(bytes, &view), Parsed::kOk);
    EXPECT_EQ(view.rows, rows);
    return view.id;
  }
  static std::vector<std::byte> Reply(std::uint64_t id, std::uint32_t rows, std::byte fill) {
    std::vector<std::byte> bytes(kReplyHeaderBytes + rows * kRow, fill);
    WriteReplyHeader({id, std::uint64_t{rows} * kRow, rows, ReplyForm::kAllOk}, bytes.data());
    return bytes;
  }
  void Say(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(connection_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void HangUp() { connection_.Reset(); }
  void StopListening() { listener_.Reset(); }

 private:
  Descriptor listener_;
  Descriptor connection_;
  std::string address_;
};

class StreamQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    fabric_ = *StreamFabric::Open({});
    std::thread greets([&] { target_.Welcome(); });
    const PeerAddress address{
        {FabricKind::kStream, target_.address(), false, false, 0}, {}, NodeId{"n"}, Incarnation(3)};
    const auto peer = fabric_->AddPeer(address, Limit());
    greets.join();
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *peer;
    queue_ = *fabric_->OpenQueue({.depth = 64, .wait = {}});
  }
  static Instant Limit() { return SystemClock::Get().Now() + std::chrono::seconds(20); }

  void Submit(std::size_t first, std::size_t count) {
    std::vector<ReadOp> ops(count);
    for (std::size_t i = 0; i < count; ++i) {
      ops[i].region = {peer_, 0, 1 << 20, 77};
      ops[i].offset = (first + i) * kRow;
      ops[i].cookie = first + i;
      ops[i].length = kRow;
      ops[i].local[0] = {memory_.data() + (first + i) * kRow, kRow, nullptr};
    }
    ASSERT_EQ(queue_->Submit(ops), count);
  }
  // Drives the queue while `work` runs.
  template <class Work>
  void While(Work work) {
    std::atomic<bool> over{false};
    std::thread thread([&] {
      work();
      over.store(true);
    });
    while (!over.load()) DriveOnce();
    thread.join();
  }
  void DriveOnce() {
    ReadCompletion some[16];
    const std::size_t got = queue_->Poll(some);
    ended_.insert(ended_.end(), some, some + got);
  }
  void AwaitEnded(std::size_t count) {
    const Instant limit = Limit();
    while (ended_.size() < count && SystemClock::Get().Now() < limit) DriveOnce();
    ASSERT_EQ(ended_.size(), count);
  }
  bool RowsAre(std::size_t first, std::size_t count, std::byte value) {
    return std::all_of(memory_.begin() + first * kRow, memory_.begin() + (first + count) * kRow,
                       [&](std::byte b) { return b == value; });
  }

  ScriptedTarget target_;
  std::unique_ptr<StreamFabric> fabric_;
  PeerId peer_;
  std::unique_ptr<ReadQueue> queue_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(64 * kRow, kUntouched);
  std::vector<ReadCompletion> ended_;
};

TEST_F(StreamQueueTest, NothingLandsAfterAbandonInTheMiddleOfAReply) {
  Submit(0, 4);
  std::uint64_t id = 0;
  While([&] {
    target_.Welcome();
    id = target_.HearRequest(4);
  });
  const auto reply = ScriptedTarget::Reply(id, 4, std::byte{1});
  target_.Say(std::span(reply).first(kReplyHeaderBytes + kRow + 10));
  while (!RowsAre(0, 1, std::byte{1})) DriveOnce();
  queue_->Abandon(peer_);
  AwaitEnded(4);
  for (const ReadCompletion& one : ended_) EXPECT_EQ(one.status, ReadStatus::kFlushed);
  std::fill(memory_.begin(), memory_.end(), kUntouched);

  Submit(8, 2);
  target_.Say(std::span(reply).subspan(kReplyHeaderBytes + kRow + 10));
  While([&] { target_.Say(ScriptedTarget::Reply(target_.HearRequest(2), 2, std::byte{2})); });
  AwaitEnded(6);
  EXPECT_EQ(ended_[4].status, ReadStatus::kOk);
  EXPECT_EQ(ended_[5].status, ReadStatus::kOk);
  EXPECT_TRUE(RowsAre(8, 2, std::byte{2}));
  EXPECT_TRUE(RowsAre(0, 8, kUntouched)) << "a late byte landed";
}

TEST_F(StreamQueueTest, NothingLandsAfterAbandonInTheMiddleOfAHeader) {
  Submit(0, 4);
  std::uint64_t id = 0;
  While([&] {
    target_.Welcome();
    id = target_.HearRequest(4);
    const auto reply = ScriptedTarget::Reply(id, 4, std::byte{1});
    target_.Say(std::span(reply).first(11));
  });
  DriveOnce();
  queue_->Abandon(peer_);
  const auto reply = ScriptedTarget::Reply(id, 4, std::byte{1});
  target_.Say(std::span(reply).subspan(11));
  Submit(8, 1);
  While([&] { target_.Say(ScriptedTarget::Reply(target_.HearRequest(1), 1, std::byte{2})); });
  AwaitEnded(5);
  EXPECT_TRUE(RowsAre(8, 1, std::byte{2}));
  EXPECT_TRUE(RowsAre(0, 8, kUntouched)) << "a late byte landed";
}

TEST_F(StreamQueueTest, TakesRepliesInAnyOrderAndInAnyPieces) {
  Submit(0, 2);
  std::uint64_t first = 0, second = 0;
  While([&] {
    target_.Welcome();
    first = target_.HearRequest(2);
  });
  Submit(2, 3);
  While([&] { second = target_.HearRequest(3); });
  auto both = ScriptedTarget::Reply(second, 3, std::byte{2});
  const auto other = ScriptedTarget::Reply(first, 2, std::byte{1});
  both.insert(both.end(), other.begin(), other.end());
  for (std::size_t at = 0; at < both.size(); at += 7) {
    target_.Say(std::span(both).subspan(at, std::min<std::size_t>(7, both.size() - at)));
    DriveOnce();
  }
  AwaitEnded(5);
  for (const ReadCompletion& one : ended_) EXPECT_EQ(one.status, ReadStatus::kOk);
  EXPECT_EQ(ended_[0].cookie, 2u);
  EXPECT_TRUE(RowsAre(0, 2, std::byte{1}));
  EXPECT_TRUE(RowsAre(2, 3, std::byte{2}));
  EXPECT_TRUE(RowsAre(5, 59, kUntouched));
}

TEST_F(StreamQueueTest, AllInOnePieceInTheWrongOrder) {
  Submit(0, 2);
  std::uint64_t first = 0, second = 0;
  While([&] {
    target_.Welcome();
    first = target_.HearRequest(2);
  });
  Submit(2, 3);
  second = target_.HearRequest(3);
  std::vector<std::byte> both(kReplyHeaderBytes);
  WriteReplyHeader({second, 0, 3, ReplyForm::kAllRefused}, both.data());
  const auto other = ScriptedTarget::Reply(first, 2, std::byte{1});
  both.insert(both.end(), other.begin(), other.end());
  target_.Say(both);
  AwaitEnded(5);
  EXPECT_EQ(ended_[0].cookie, 2u);
  EXPECT_EQ(ended_[0].status, ReadStatus::kRefused);
  EXPECT_EQ(ended_[4].status, ReadStatus::kOk);
  EXPECT_TRUE(RowsAre(0, 2, std::byte{1}));
  EXPECT_TRUE(RowsAre(2, 62, kUntouched));
}

TEST_F(StreamQueueTest, ALostConnectionFailsItsReadsAndTheNextSubmitReconnects) {
  Submit(0, 2);
  While([&] {
    target_.Welcome();
    target_.HearRequest(2);
    target_.HangUp();
  });
  AwaitEnded(2);
  EXPECT_EQ(ended_[0].status, ReadStatus::kUnreachable);
  Submit(2, 1);
  While([&] {
    target_.Welcome();
    target_.Say(ScriptedTarget::Reply(target_.HearRequest(1), 1, std::byte{5}));
  });
  AwaitEnded(3);
  EXPECT_EQ(ended_[2].status, ReadStatus::kOk);
  EXPECT_TRUE(RowsAre(2, 1, std::byte{5}));
}

TEST_F(StreamQueueTest, AReconnectToAnotherIncarnationIsRefused) {
  Submit(0, 2);
  While([&] { target_.Welcome(HelloResult::kOtherIncarnation); });
  AwaitEnded(2);
  EXPECT_EQ(ended_[1].status, ReadStatus::kUnreachable);
}

TEST_F(StreamQueueTest, NobodyListeningIsUnreachable) {
  target_.StopListening();
  Submit(0, 2);
  AwaitEnded(2);
  EXPECT_EQ(ended_[1].status, ReadStatus::kUnreachable);
}

TEST_F(StreamQueueTest, AnAnswerToNoRequestBreaksTheConnection) {
  Submit(0, 2);
  While([&] {
    target_.Welcome();
    target_.Say(ScriptedTarget::Reply(target_.HearRequest(2) + 1, 2, std::byte{1}));
  });
  AwaitEnded(2);
  EXPECT_EQ(ended_[0].status, ReadStatus::kUnreachable);
}

TEST_F(StreamQueueTest, ReadsThatWaitForAConnectionShareMessages) {
  for (std::size_t i = 0; i < 8; ++i) Submit(i, 1);
  While([&] {
    target_.Welcome();
    target_.Say(ScriptedTarget::Reply(target_.HearRequest(8), 8, std::byte{1}));
  });
  AwaitEnded(8);
  EXPECT_TRUE(RowsAre(0, 8, std::byte{1}));
}

}  // namespace
}  // namespace engram::fabric::stream
