#include "fabric/ucx/libucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fabric/ucx/transport.h"
#include "fabric/ucx/ucx_fabric.h"
#include "tests/fabric/loaded.h"

namespace engram::fabric::ucx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The first of this program, which nothing else may have made load it.
TEST(LibucxTest, IsNotThereBeforeTheFirstUseAndTakesNoSignalWhenItComes) {
  EXPECT_FALSE(IsMapped("libucp"));
  const auto before = SignalDispositions();
  auto fabric = UcxFabric::Open({});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_TRUE(IsMapped("libucp.so"));
  EXPECT_EQ(SignalDispositions(), before);
}

TEST(LibucxTest, AMissingLibraryIsNamedWithThePackageThatBringsIt) {
  const auto opened = OpenLibucx("libnowhere.so.7");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("libnowhere.so.7"), HasSubstr("install the Debian package libucx0")));
}

TEST(LibucxTest, ALibraryWithoutItsSymbolsIsNamedWithTheFirstThatIsMissing) {
  const auto opened = OpenLibucx("libc.so.6");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("libc.so.6"), HasSubstr("ucp_")));
}

TEST(TransportTest, AnUnknownTransportIsNamedWithWhereToLook) {
  UcxFabricOptions options;
  options.transport.transports = "telegraph";
  const auto fabric = UcxFabric::Open(options);
  EXPECT_EQ(fabric.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fabric.status().message()),
              AllOf(HasSubstr("telegraph"), HasSubstr("ucx_info -d")));
}

TEST(TransportTest, RefusesTheTransportThatEndsAReaderWithItsNode) {
  for (const char* transports : {"posix", "tcp,posix", "shm"}) {
    const auto opened = Transport::Open({.transports = transports});
    ASSERT_TRUE(absl::IsInvalidArgument(opened.status())) << transports;
    EXPECT_THAT(std::string(opened.status().message()),
                testing::HasSubstr("is not safe in UCX 1.13"));
  }
}

TEST(TransportTest, LeavesThatTransportOutWhereUcxChooses) {
  EXPECT_EQ(*UsableTransports(""), "^posix");
  EXPECT_EQ(*UsableTransports("all"), "^posix");
  EXPECT_EQ(*UsableTransports("^cuda"), "^cuda,posix");
  EXPECT_EQ(*UsableTransports("rc,tcp"), "rc,tcp");
  const auto opened = Transport::Open({});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->name(), "auto");
}

TEST(TransportTest, WithoutAnRdmaTransportReadsAreAskedFor) {
  const auto transport = Transport::Open({.transports = "tcp"});
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_FALSE((*transport)->uses_get());
  const FabricInfo info = (*transport)->Describe();
  EXPECT_FALSE(info.one_sided);
  EXPECT_FALSE(info.needs_registration);
  EXPECT_EQ(info.wrong_key, WrongKey::kFailsRead);
}

TEST(LocationTest, IsReadBackAsItWasWritten) {
  const TargetLocation location{
      "rc,tcp", Incarnation(77), TargetLocation::Kind::kWorker, {std::byte{1}, std::byte{0xfe}}};
  const std::string text = FormatLocation(location);
  EXPECT_EQ(text.substr(0, 7), "rc,tcp!");
  const auto back = ParseLocation(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->transports, location.transports);
  EXPECT_EQ(back->incarnation, location.incarnation);
  EXPECT_EQ(back->kind, location.kind);
  EXPECT_EQ(back->address, location.address);
}

TEST(LocationTest, RefusesWhatNoTargetWrites) {
  for (const char* text :
       {"", "tcp", "tcp!", "!00", "tcp!0", "tcp!0102030405060708", "tcp!xx",
        "tcp!0102030405060708AA", "tcp!01020304050607080300", "tcp!01020304050607080100"}) {
    EXPECT_EQ(ParseLocation(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace engram::fabric::ucx
