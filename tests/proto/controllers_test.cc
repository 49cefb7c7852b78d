#include "proto/controllers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engram/not_leader.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::wire {
namespace {

using ::testing::ElementsAre;

TEST(ControllersTest, SplitsAList) {
  EXPECT_THAT(Controllers::Split("a:1, b:2,"), ElementsAre("a:1", "b:2"));
  EXPECT_THAT(Controllers::Split(""), ElementsAre());
}

class ControllersAsked : public ::testing::Test {
 protected:
  // Asks; `answer` says what each endpoint answers.
  absl::Status Ask(const std::function<absl::Status(const std::string&)>& answer) {
    asked_.clear();
    return controllers_.Call(
        [&](const Controllers::One& one, grpc::ClientContext*) {
          asked_.push_back(one.endpoint);
          return ToGrpc(answer(one.endpoint));
        },
        std::chrono::seconds(1));
  }
  Controllers controllers_{{"a:1", "b:1", "c:1"},
                           [](const std::string& endpoint) { return Connect(endpoint); }};
  std::vector<std::string> asked_;
};

TEST_F(ControllersAsked, StaysWithTheOneThatAnswers) {
  const auto only_b = [](const std::string& endpoint) {
    return endpoint == "b:1" ? absl::OkStatus() : absl::UnavailableError("down");
  };
  EXPECT_TRUE(Ask(only_b).ok());
  EXPECT_THAT(asked_, ElementsAre("a:1", "b:1"));
  EXPECT_TRUE(Ask(only_b).ok());
  EXPECT_THAT(asked_, ElementsAre("b:1"));
}

TEST_F(ControllersAsked, GoesToTheLeaderThatAFollowerNames) {
  const auto named = [](const std::string& endpoint) {
    return endpoint == "elsewhere:1" ? absl::OkStatus() : NotLeader("elsewhere:1");
  };
  EXPECT_TRUE(Ask(named).ok());
  EXPECT_THAT(asked_, ElementsAre("a:1", "elsewhere:1"));
}

TEST_F(ControllersAsked, AsksEveryOneAndThenSaysThatNobodyLeads) {
  // The leader that they name is gone.
  const absl::Status status = Ask([](const std::string& endpoint) {
    return endpoint == "c:1" ? absl::UnavailableError("down") : NotLeader("c:1");
  });
  EXPECT_TRUE(IsNotLeader(status)) << status;
  EXPECT_THAT(asked_, ::testing::IsSupersetOf({"a:1", "b:1", "c:1"}));
}

TEST_F(ControllersAsked, AnAnswerThatIsNoneOfThoseIsFinal) {
  EXPECT_TRUE(absl::IsNotFound(Ask([](const std::string&) { return absl::NotFoundError("?"); })));
  EXPECT_THAT(asked_, ElementsAre("a:1"));
}

}  // namespace
}  // namespace engram::wire
