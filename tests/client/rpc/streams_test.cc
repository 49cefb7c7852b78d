// Streams to nobody: where they end. The thread that drops the last channel of a process ends
// gRPC's callback threads and joins them, so it must not be one of those.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/blocking_counter.h"
#include "client/rpc/map_stream.h"
#include "client/rpc/session_stream.h"
#include "proto/grpc_server.h"

namespace engram::client {
namespace {

constexpr int kStreams = 1000;
constexpr char kNobody[] = "127.0.0.1:1";

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() {
    // Never sleeps: it handles an event before the thread that posted it goes on.
    loop_->Start([](Instant now) { return now; });
    loop_->Do([this] { loop_thread_ = std::this_thread::get_id(); });
  }
  ~StreamsTest() override { loop_->Stop(); }

  // Held by a stream; counts those that are let go neither by the loop nor by this test.
  std::shared_ptr<int> Witness() {
    return std::shared_ptr<int>(new int, [this](int* held) {
      delete held;
      const std::thread::id here = std::this_thread::get_id();
      if (here != loop_thread_ && here != test_thread_) elsewhere_.fetch_add(1);
      gone_.DecrementCount();
    });
  }

  const std::shared_ptr<DutyLoop> loop_ = std::make_shared<DutyLoop>();
  const std::thread::id test_thread_ = std::this_thread::get_id();
  std::thread::id loop_thread_;
  std::atomic<int> elsewhere_{0};
  absl::BlockingCounter gone_{kStreams};
};

TEST_F(StreamsTest, SessionsThatNobodyHoldsAnyMoreDoNotEndOnAThreadOfGrpc) {
  for (int i = 0; i < kStreams; ++i) {
    SessionStream::Outlets outlets;
    outlets.heard = [](const NodeMessage&) {};
    outlets.lost = [witness = Witness()](const absl::Status& why) { EXPECT_FALSE(why.ok()); };
    SessionStream::Open(loop_, kNobody, wire::Connect(kNobody), std::move(outlets));
  }
  gone_.Wait();
  EXPECT_EQ(elsewhere_, 0);
}

TEST_F(StreamsTest, MapSubscriptionsThatNobodyHoldsAnyMoreDoNotEndOnAThreadOfGrpc) {
  for (int i = 0; i < kStreams; ++i) {
    MapStream::Outlets outlets;
    outlets.delta = [](const MapDelta&) {};
    outlets.lost = [witness = Witness()](const absl::Status& why) { EXPECT_FALSE(why.ok()); };
    MapStream::Open(loop_, wire::Connect(kNobody), {}, std::move(outlets));
  }
  gone_.Wait();
  EXPECT_EQ(elsewhere_, 0);
}

TEST_F(StreamsTest, AStreamIsDoneWhenItsEndWasHeard) {
  std::atomic<bool> heard{false};
  SessionStream::Outlets outlets;
  outlets.heard = [](const NodeMessage&) {};
  outlets.lost = [&heard](const absl::Status&) { heard = true; };
  const auto stream =
      SessionStream::Open(loop_, kNobody, wire::Connect(kNobody), std::move(outlets));
  stream->Cancel();
  EXPECT_TRUE(stream->WaitDone(std::chrono::seconds(30)));
  EXPECT_TRUE(heard);
  EXPECT_TRUE(stream->IsDone());
}

}  // namespace
}  // namespace engram::client
