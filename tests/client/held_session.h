// A client session whose adapter is the test: it feeds the events and looks at the actions.
// Thread-confined: call from the owner thread only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

#include "client/session.h"
#include "tests/actions_of.h"

namespace engram::client {

using session::Action;
using std::chrono::milliseconds;
using std::chrono::seconds;
using State = ClientSession::State;

inline ShardKey HeldShard(std::uint32_t index) { return {TableUid{{1}}, ShardIndex(index)}; }
inline Grant HeldGrant(std::uint32_t index) {
  return {HeldShard(index), Tier::kDram, {{0, 0, 64, index}}};
}

template <class T>
std::vector<T> Said(const std::vector<Action>& actions) {
  std::vector<T> out;
  for (const session::SendToNode& send : All<session::SendToNode>(actions)) {
    if (const T* found = std::get_if<T>(&send.message)) out.push_back(*found);
  }
  return out;
}

class ClientSessionTest : public testing::Test {
 protected:
  ClientSessionTest() : random_(1), session_(Options(), &quiescence_, &random_) {}

  static ClientSessionOptions Options() {
    ClientSessionOptions options;
    options.client = "replica-0";
    options.node = {"node-0"};
    options.incarnation = Incarnation(7);
    options.endpoint = "h:1";
    options.tables = {TableUid{{1}}};
    return options;
  }

  std::vector<Action> Feed(session::Event event) {
    return session_.OnEvent(now_, std::move(event));
  }
  std::vector<Action> Hear(NodeMessage message) {
    return Feed(session::NodeSaid{session_.opening(), std::move(message)});
  }
  std::vector<Action> Opened() {
    SessionOpened opened;
    opened.node = {"node-0"};
    opened.incarnation = Incarnation(7);
    opened.lease = seconds(9);
    return Hear(opened);
  }
  void Open() {
    Feed(session::Start{});
    Opened();
    ASSERT_EQ(session_.state(), State::kOpen);
  }
  // Publishes as the adapter would.
  std::vector<Action> RoutesChanged(std::uint64_t revision) {
    return Feed(
        session::RoutesChanged{session_.opening(), GrantRevision(revision), quiescence_.Publish()});
  }
  std::vector<Action> Released(std::uint64_t revision) {
    return Feed(session::RegionsReleased{session_.opening(), GrantRevision(revision)});
  }
  std::vector<Action> Break() {
    return Feed(session::StreamLost{session_.opening(), absl::UnavailableError("reset")});
  }
  // The opening by which the session is asked for again.
  session::Opening AskedAgain() {
    now_ = *session_.NextTimer();
    const auto streams = All<session::OpenStream>(Feed(session::Timer{}));
    EXPECT_EQ(streams.size(), 1u);
    EXPECT_GT(streams.at(0).session, session_.opening());
    return streams.at(0).session;
  }
  void Hold(std::uint32_t shards) {
    GrantUpdate update;
    update.revision = GrantRevision(1);
    for (std::uint32_t i = 0; i < shards; ++i) update.granted.push_back(HeldGrant(i));
    Hear(update);
    RoutesChanged(1);
    ASSERT_EQ(session_.applied(), GrantRevision(1));
  }
  std::vector<Action> Withdraw(std::uint64_t revision, std::uint32_t shard,
                               std::vector<Successor> successors = {}) {
    GrantUpdate update;
    update.revision = GrantRevision(revision);
    update.withdrawn.push_back({HeldShard(shard), std::move(successors)});
    return Hear(update);
  }

  Instant now_{seconds(100)};
  SeededRandom random_;
  Quiescence quiescence_;
  QuiescenceReader reader_{&quiescence_};
  ClientSession session_;
};

}  // namespace engram::client
