#include "client/ctl/outcome.h"

#include <gtest/gtest.h>

namespace engram::ctl {
namespace {

TEST(ExitCodeOf, FollowsTheDocumentedCodes) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("said by the pool")), 1);
  EXPECT_EQ(ExitCodeOf(UsageError("typed wrongly")), 2);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), 3);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), 4);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("x")), 5);
}

TEST(Annotated, KeepsWhatTheStatusMeans) {
  const absl::Status status = Annotated(UsageError("not a number"), "--tokens");
  EXPECT_EQ(status.message(), "--tokens: not a number");
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  EXPECT_FALSE(IsReported(status));
  EXPECT_TRUE(IsReported(Annotated(AlreadyReported(absl::StatusCode::kInternal), "x")));
}

}  // namespace
}  // namespace engram::ctl
