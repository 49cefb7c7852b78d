#include "proto/grpc_server.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace engram::wire {
namespace {

TEST(GrpcServer, RefusesReachableAddressWithoutTheFlag) {
  EXPECT_EQ(CheckListen("0.0.0.0:7700", false).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(CheckListen("0.0.0.0:7700", false).message(),
              testing::HasSubstr("--insecure-listen"));
  EXPECT_TRUE(CheckListen("0.0.0.0:7700", true).ok());
  EXPECT_TRUE(CheckListen("127.0.0.1:7700", false).ok());
  EXPECT_TRUE(CheckListen("[::1]:7700", false).ok());
}

TEST(GrpcServer, RefusesMalformedAddresses) {
  for (const char* bad : {"", ":1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:x"}) {
    EXPECT_EQ(CheckListen(bad, true).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(GrpcServer, PortInUseIsAClearError) {
  auto first = GrpcServer::Start({});
  ASSERT_TRUE(first.ok()) << first.status();
  ServerOptions options;
  options.listen = "127.0.0.1:" + std::to_string((*first)->port());
  auto second = GrpcServer::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(options.listen));
}

TEST(GrpcServer, PortInUsePrintsNothing) {
  if (getenv("GRPC_VERBOSITY") != nullptr) GTEST_SKIP() << "GRPC_VERBOSITY is set";
  auto first = GrpcServer::Start({});
  ASSERT_TRUE(first.ok()) << first.status();
  ServerOptions options;
  options.listen = "127.0.0.1:" + std::to_string((*first)->port());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(GrpcServer::Start(options).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace engram::wire
