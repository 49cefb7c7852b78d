// What a stream target owes peers that misbehave, and sources that answer later. Well-behaved peers
// are the conformance suite's business.
#include "fabric/stream/stream_target.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric/stream/stream_fabric.h"

namespace engram::fabric::stream {
namespace {

constexpr std::uint32_t kServedRow = 264;
constexpr std::uint32_t kServedRows = 4096;
constexpr int kPatienceMs = 20'000;

Instant Soon() { return SystemClock::Get().Now() + std::chrono::milliseconds(kPatienceMs); }

// Answers when it is told to.
class LateSource final : public RowSource {
 public:
  void Start(const Shape& shape, std::span<const RowWanted> rows,
             std::function<void()> done) override {
    for (const RowWanted& row : rows) {
      if (row.offset == 0) {
        *row.status = ReadStatus::kCorrupt;
        continue;
      }
      std::memset(row.to[0], static_cast<int>(row.offset / kServedRow), shape.bytes[0]);
    }
    std::lock_guard lock(mutex_);
    done_.push_back(std::move(done));
  }
  bool Started() {
    std::lock_guard lock(mutex_);
    return !done_.empty();
  }
  void Answer() {
    std::vector<std::function<void()>> done;
    {
      std::lock_guard lock(mutex_);
      done.swap(done_);
    }
    for (auto& each : done) each();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> done_;
};

// A peer that speaks bytes.
class RawPeer {
 public:
  explicit RawPeer(const StreamTarget& target) {
    const auto address = ParseAddress(target.address().address);
    fd_ = Descriptor(socket(address->family(), SOCK_STREAM, 0));
    EXPECT_EQ(
        connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->bytes),
        0);
  }
  void Send(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  HelloResult Greet(const SessionToken& token, Lane lane = Lane::kUrgent) {
    std::byte bytes[kHelloBytes];
    WriteHello({lane, Incarnation(3), token}, bytes);
    Send(bytes);
    EXPECT_EQ(recv(fd_.get(), bytes, sizeof bytes, MSG_WAITALL), ssize_t{kHelloBytes});
    HelloReply reply;
    EXPECT_EQ(ParseHelloReply(bytes, &reply), Parsed::kOk);
    return reply.result;
  }
  // True when the target closes the connection.
  bool IsDropped() {
    char buffer[65536];
    while (true) {
      pollfd wait{fd_.get(), POLLIN, 0};
      if (poll(&wait, 1, kPatienceMs) != 1) return false;
      if (recv(fd_.get(), buffer, sizeof buffer, 0) <= 0) return true;
    }
  }
  // True when the target closes the connection; nothing is read from it.
  bool IsReset() {
    pollfd wait{fd_.get(), POLLRDHUP, 0};
    return poll(&wait, 1, kPatienceMs) == 1;
  }
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
};

std::vector<std::byte> RequestFor(std::uint64_t key, std::uint32_t rows, std::uint64_t id) {
  std::vector<std::byte> bytes(kRequestHeaderBytes + rows * 8 + 8);
  WriteRequestHeader(id, rows, 1, {1, {kServedRow, 0, 0}}, bytes.data());
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t descriptor = PackDescriptor(0, row * kServedRow);
    std::memcpy(bytes.data() + kRequestHeaderBytes + row * 8, &descriptor, 8);
  }
  std::memcpy(bytes.data() + kRequestHeaderBytes + rows * 8, &key, 8);
  return bytes;
}

class StreamTargetTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t row = 0; row < kServedRows; ++row) {
      std::memset(memory_.data() + std::size_t{row} * kServedRow, static_cast<int>(row),
                  kServedRow);
    }
    token_.bytes[0] = 42;
  }

  void Open(StreamTargetOptions options = {}) {
    options.incarnation = Incarnation(3);
    auto target = StreamTarget::Open(options);
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    target_->Admit(token_);
    region_ =
        target_->ExposeSource(std::make_unique<MemoryRowSource>(memory_.data()), memory_.size());
    target_->Allow(token_, region_.key);
  }

  void Connect() {
    fabric_ = *StreamFabric::Open({});
    const auto peer =
        fabric_->AddPeer({target_->address(), token_, NodeId{"n"}, Incarnation(3)}, Soon());
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *peer;
    queue_ = *fabric_->OpenQueue({.depth = 32768, .wait = {}});
  }

  ReadOp Op(const ExposedRegion& region, std::uint64_t row, std::byte* to, std::uint64_t cookie,
            Lane lane = Lane::kUrgent) {
    ReadOp op;
    op.region = {peer_, region.address, region.length, region.key};
    op.offset = row * kServedRow;
    op.length = kServedRow;
    op.cookie = cookie;
    op.lane = lane;
    op.local[0] = {to, kServedRow, nullptr};
    return op;
  }

  // Polls until `count` reads ended; in the order in which they did.
  std::vector<ReadCompletion> Await(std::size_t count) {
    std::vector<ReadCompletion> ended;
    const Instant limit = Soon();
    while (ended.size() < count && SystemClock::Get().Now() < limit) {
      ReadCompletion some[256];
      const std::size_t got = queue_->Poll(some);
      ended.insert(ended.end(), some, some + got);
      pollfd wait{got > 0 ? -1 : queue_->ArmWait(), POLLIN, 0};
      if (wait.fd >= 0) poll(&wait, 1, 1000);
    }
    EXPECT_EQ(ended.size(), count);
    return ended;
  }

  // A region whose rows come when its source is told to answer.
  struct Slow {
    LateSource* source = nullptr;
    ExposedRegion region;
  };
  Slow ExposeSlow() {
    auto source = std::make_unique<LateSource>();
    LateSource* const late = source.get();
    const Slow slow{late, target_->ExposeSource(std::move(source), kServedRow * 100)};
    target_->Allow(token_, slow.region.key);
    return slow;
  }

  // Reads row 5, cookie 1; returns when the source is at work. A queue moves only when it is
  // polled, its connecting included.
  void StartRead(const Slow& slow, std::byte* to) {
    const ReadOp op = Op(slow.region, 5, to, 1);
    ASSERT_EQ(queue_->Submit({&op, 1}), 1u);
    ReadCompletion none;
    while (!slow.source->Started()) ASSERT_EQ(queue_->Poll({&none, 1}), 0u);
  }

  // A good client is still served.
  void ExpectServes() {
    if (fabric_ == nullptr) Connect();
    std::vector<std::byte> to(kServedRow);
    const ReadOp op = Op(region_, 17, to.data(), 1);
    ASSERT_EQ(queue_->Submit({&op, 1}), 1u);
    ASSERT_EQ(Await(1).at(0).status, ReadStatus::kOk);
    EXPECT_EQ(to, std::vector<std::byte>(kServedRow, std::byte{17}));
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{kServedRows} * kServedRow);
  SessionToken token_;
  std::unique_ptr<StreamTarget> target_;
  ExposedRegion region_;
  std::unique_ptr<StreamFabric> fabric_;
  PeerId peer_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_F(StreamTargetTest, DropsGarbageInsteadOfAHello) {
  Open();
  RawPeer peer(*target_);
  peer.Send(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(peer.IsDropped());
  ExpectServes();
}

TEST_F(StreamTargetTest, DropsGarbageInsteadOfARequest) {
  Open();
  RawPeer peer(*target_);
  ASSERT_EQ(peer.Greet(token_), HelloResult::kWelcome);
  peer.Send(std::vector<std::byte>(1000, std::byte{0xff}));
  EXPECT_TRUE(peer.IsDropped());
  ExpectServes();
}

TEST_F(StreamTargetTest, DropsAPeerThatDripsItsHello) {
  StreamTargetOptions options;
  options.limits.hello = std::chrono::milliseconds(50);
  Open(options);
  RawPeer peer(*target_);
  std::byte hello[kHelloBytes];
  WriteHello({Lane::kUrgent, Incarnation(3), token_}, hello);
  peer.Send(std::span(hello).first(31));
  EXPECT_TRUE(peer.IsDropped());
  ExpectServes();
}

TEST_F(StreamTargetTest, DropsAPeerThatNeverEndsItsRequest) {
  StreamTargetOptions options;
  options.limits.request = std::chrono::milliseconds(50);
  Open(options);
  RawPeer peer(*target_);
  ASSERT_EQ(peer.Greet(token_), HelloResult::kWelcome);
  const auto request = RequestFor(region_.key, 48, 1);
  peer.Send(std::span(request).first(request.size() - 1));
  EXPECT_TRUE(peer.IsDropped());
  ExpectServes();
}

TEST_F(StreamTargetTest, DropsAPeerThatNeverReadsAndServesOthersMeanwhile) {
  StreamTargetOptions options;
  options.limits.reply = std::chrono::milliseconds(100);
  Open(options);
  RawPeer peer(*target_);
  ASSERT_EQ(peer.Greet(token_), HelloResult::kWelcome);
  const auto request = RequestFor(region_.key, kMaxRows, 1);
  // Replies of 400 KB each fill every socket buffer long before the requests do.
  for (std::uint64_t i = 0; i < 64; ++i) {
    if (send(peer.fd(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
  }
  ExpectServes();
  EXPECT_TRUE(peer.IsReset());
  ExpectServes();
}

TEST_F(StreamTargetTest, AnswersRequestsThatArriveTogetherBeyondItsBound) {
  for (const Lane lane : {Lane::kUrgent, Lane::kBulk}) {
    Open();
    RawPeer peer(*target_);
    ASSERT_EQ(peer.Greet(token_, lane), HelloResult::kWelcome);
    constexpr std::uint64_t kRequests = 40;
    std::vector<std::byte> all;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const auto one = RequestFor(region_.key, 4, i);
      all.insert(all.end(), one.begin(), one.end());
    }
    peer.Send(all);
    std::vector<std::byte> replies(kRequests * (kReplyHeaderBytes + 4 * kServedRow));
    ASSERT_EQ(recv(peer.fd(), replies.data(), replies.size(), MSG_WAITALL),
              static_cast<ssize_t>(replies.size()));
    EXPECT_EQ(replies.back(), std::byte{3});
    EXPECT_EQ(target_->counters(lane).messages, kRequests);
    EXPECT_EQ(target_->counters(lane).rows, kRequests * 4);
  }
}

TEST_F(StreamTargetTest, RefusesConnectionsBeyondItsBound) {
  StreamTargetOptions options;
  options.max_connections = 1;
  Open(options);
  RawPeer first(*target_);
  ASSERT_EQ(first.Greet(token_), HelloResult::kWelcome);
  RawPeer second(*target_);
  EXPECT_TRUE(second.IsDropped());
}

TEST_F(StreamTargetTest, DismissClosesTheConnectionsOfTheSession) {
  Open();
  RawPeer peer(*target_);
  ASSERT_EQ(peer.Greet(token_), HelloResult::kWelcome);
  SessionToken other;
  other.bytes[1] = 1;
  target_->Dismiss(other);
  ExpectServes();
  target_->Dismiss(token_);
  EXPECT_TRUE(peer.IsDropped());
}

TEST_F(StreamTargetTest, UrgentOvertakesBulk) {
  Open();
  Connect();
  constexpr std::size_t kBulk = 16 * kMaxRows;
  std::vector<std::byte> to(kServedRow * (kBulk + 1));
  std::vector<ReadOp> ops;
  for (std::size_t i = 0; i < kBulk; ++i) {
    ops.push_back(Op(region_, i % kServedRows, to.data() + i * kServedRow, i, Lane::kBulk));
  }
  ops.push_back(Op(region_, 9, to.data() + kBulk * kServedRow, kBulk, Lane::kUrgent));
  ASSERT_EQ(queue_->Submit(ops), ops.size());
  const auto ended = Await(ops.size());
  std::size_t place = 0;
  while (ended.at(place).cookie != kBulk) ++place;
  EXPECT_LT(place, kBulk) << "the urgent read ended last";
  EXPECT_EQ(target_->counters(Lane::kBulk).rows, kBulk);
  EXPECT_EQ(target_->counters(Lane::kUrgent).rows, 1u);
}

TEST_F(StreamTargetTest, ThreadsShareTheSessions) {
  StreamTargetOptions options;
  options.threads = 3;
  Open(options);
  for (std::uint8_t first = 0; first < 6; ++first) {
    token_.bytes[0] = first;
    target_->Admit(token_);
    target_->Allow(token_, region_.key);
    fabric_.reset();
    ExpectServes();
    queue_.reset();
  }
}

TEST_F(StreamTargetTest, ASourceMayAnswerLaterAndOutOfOrder) {
  Open();
  Connect();
  const Slow slow = ExposeSlow();
  std::vector<std::byte> to(kServedRow * 3, std::byte{0xee});
  StartRead(slow, to.data());
  const ReadOp quick_op = Op(region_, 6, to.data() + kServedRow, 2);
  ASSERT_EQ(queue_->Submit({&quick_op, 1}), 1u);
  EXPECT_EQ(Await(1).at(0).cookie, 2u) << "the later request did not overtake";
  EXPECT_EQ(to[kServedRow], std::byte{6});
  slow.source->Answer();
  const ReadCompletion last = Await(1).at(0);
  EXPECT_EQ(last.cookie, 1u);
  EXPECT_EQ(last.status, ReadStatus::kOk);
  EXPECT_EQ(std::vector<std::byte>(to.begin(), to.begin() + kServedRow),
            std::vector<std::byte>(kServedRow, std::byte{5}));
  EXPECT_EQ(to[2 * kServedRow], std::byte{0xee});
}

TEST_F(StreamTargetTest, OneMessageMayHaveRowsOfSeveralSourcesAndOutcomes) {
  Open();
  Connect();
  const Slow slow = ExposeSlow();
  for (const Lane lane : {Lane::kUrgent, Lane::kBulk}) {
    for (const bool contiguous : {true, false}) {
      constexpr std::size_t kOps = 600;
      std::vector<std::byte> to(kServedRow * kOps * 2);
      std::vector<ReadOp> ops;
      for (std::size_t i = 0; i < kOps; ++i) {
        std::byte* place = to.data() + (contiguous ? i : (kOps - i) * 2 - 1) * kServedRow;
        ops.push_back(i % 3 == 0   ? Op(region_, i, place, i, lane)
                      : i % 3 == 1 ? Op(slow.region, i % 60, place, i, lane)
                                   : Op(region_, i, place, i, lane));
        if (i % 3 == 2) ops.back().region.key ^= 1;
      }
      ASSERT_EQ(queue_->Submit(ops), kOps);
      std::atomic<bool> over{false};
      std::thread answers([&] {
        while (!over.load()) slow.source->Answer();
      });
      const auto ended = Await(kOps);
      over.store(true);
      answers.join();
      for (const ReadCompletion& one : ended) {
        const std::size_t i = one.cookie;
        const bool corrupt = i % 3 == 1 && i % 60 == 0;
        ASSERT_EQ(one.status, i % 3 == 2 ? ReadStatus::kRefused
                              : corrupt  ? ReadStatus::kCorrupt
                                         : ReadStatus::kOk)
            << i;
        if (one.status != ReadStatus::kOk) continue;
        const auto wanted = static_cast<std::byte>(i % 3 == 1 ? i % 60 : i);
        const std::byte* got = ops[i].local[0].data;
        ASSERT_EQ(std::vector<std::byte>(got, got + kServedRow),
                  std::vector<std::byte>(kServedRow, wanted));
      }
    }
  }
}

TEST_F(StreamTargetTest, HideWaitsForASourceAtWork) {
  Open();
  Connect();
  const Slow slow = ExposeSlow();
  std::vector<std::byte> to(kServedRow);
  StartRead(slow, to.data());
  std::atomic<bool> answered{false};
  std::thread hides([&] {
    target_->Hide(slow.region.key);
    EXPECT_TRUE(answered.load()) << "hidden while its source worked";
  });
  // The connection goes on serving others, and its own later requests, while Hide waits.
  std::vector<std::byte> other(kServedRow);
  const ReadOp quick = Op(region_, 6, other.data(), 2);
  ASSERT_EQ(queue_->Submit({&quick, 1}), 1u);
  EXPECT_EQ(Await(1).at(0).cookie, 2u);
  answered.store(true);
  slow.source->Answer();
  hides.join();
  EXPECT_EQ(Await(1).at(0).status, ReadStatus::kOk);
}

TEST_F(StreamTargetTest, StopWaitsForASourceAtWork) {
  Open();
  Connect();
  const Slow slow = ExposeSlow();
  std::vector<std::byte> to(kServedRow);
  StartRead(slow, to.data());
  std::thread stops([&] { target_->Stop(); });
  EXPECT_EQ(Await(1).at(0).status, ReadStatus::kUnreachable);
  slow.source->Answer();
  stops.join();
}

TEST(StreamListen, SaysWhatIsWrongWithAnAddress) {
  for (const char* address : {"", "127.0.0.1", ":7", "127.0.0.1:", "unix:"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(StreamTarget::Open({.listen = address}).status()))
        << address;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(StreamTarget::Open({.listen = "0.0.0.0:0"}).status()));
}

TEST(StreamListen, TellsTheAddressThatClientsNeed) {
  auto one = StreamTarget::Open({.listen = "0.0.0.0:0", .advertise = "node-3.pool"});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->address().address.rfind("node-3.pool:", 0), 0u);
  EXPECT_NE((*one)->address().address, "node-3.pool:0");
  auto two = StreamTarget::Open({.listen = "127.0.0.1:0", .advertise = "node-3.pool:81"});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ((*two)->address().address, "node-3.pool:81");
}

TEST(StreamListen, RefusesAPortInUse) {
  auto one = StreamTarget::Open({});
  ASSERT_TRUE(one.ok()) << one.status();
  const auto two = StreamTarget::Open({.listen = (*one)->address().address});
  EXPECT_TRUE(absl::IsAlreadyExists(two.status())) << two.status();
}

TEST(StreamListen, TakesOverTheSocketFileOfADeadProcessOnly) {
  const std::string path = absl::StrCat("/tmp/engram-stream-test-", getpid());
  const std::string address = "unix:" + path;
  {
    // Bound and never unlinked: what a killed process leaves.
    Descriptor dead(socket(AF_UNIX, SOCK_STREAM, 0));
    const auto parsed = ParseAddress(address);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->bytes),
              0);
  }
  auto one = StreamTarget::Open({.listen = address});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->address().address, address);
  const auto two = StreamTarget::Open({.listen = address});
  EXPECT_TRUE(absl::IsAlreadyExists(two.status())) << two.status();
  one->reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket file stayed behind";
}

}  // namespace
}  // namespace engram::fabric::stream
