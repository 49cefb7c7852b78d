#include "fabric/ofi/libfabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "fabric/ofi/ofi_fabric.h"
#include "tests/fabric/loaded.h"

namespace engram::fabric::ofi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The first of this program, which nothing else may have made load it.
TEST(LibfabricTest, IsNotThereBeforeTheFirstUseAndTakesNoSignalWhenItComes) {
  EXPECT_FALSE(IsMapped("libfabric"));
  const auto before = SignalDispositions();
  auto fabric = OfiFabric::Open({});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_TRUE(IsMapped("libfabric.so"));
  EXPECT_EQ(SignalDispositions(), before);
}

// What a variable is after the library was asked for, when it was `value` before (null: not set).
std::string AfterLoading(const char* name, const char* value) {
  const char* const now = getenv(name);
  const std::string kept = now == nullptr ? "" : now;
  value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  EXPECT_FALSE(OpenLibfabric("libnowhere.so.7").ok());
  const char* const got = getenv(name);
  const std::string after = got == nullptr ? "" : got;
  now == nullptr ? unsetenv(name) : setenv(name, kept.c_str(), 1);
  return after;
}

TEST(LibfabricTest, QueueSizesAreComputedAndThoseThatAreSetStand) {
  const int sends = std::stoi(AfterLoading("FI_OFI_RXM_MSG_TX_SIZE", nullptr));
  const int receives = std::stoi(AfterLoading("FI_OFI_RXM_MSG_RX_SIZE", nullptr));
  const int universe = std::stoi(AfterLoading("FI_UNIVERSE_SIZE", nullptr));
  EXPECT_GE(sends, 16) << "fewer than a NIC works on at a time";
  EXPECT_GE(receives, 1);
  const int completions = (sends + receives) * universe;
  EXPECT_GE(completions, 1024 * receives) << "connections that break at once overflow the queue";
  EXPECT_LE(completions, 32767) << "soft-RoCE has no queue as large";
  for (const char* name :
       {"FI_OFI_RXM_MSG_TX_SIZE", "FI_OFI_RXM_MSG_RX_SIZE", "FI_UNIVERSE_SIZE"}) {
    EXPECT_EQ(AfterLoading(name, "77"), "77") << name;
  }
}

TEST(LibfabricTest, WhatKeepsRetiredMemoryReadableIsSwitchedOffWhateverWasSet) {
  EXPECT_EQ(AfterLoading("FI_MR_CACHE_MAX_COUNT", "1000"), "0");
  EXPECT_EQ(AfterLoading("FI_MR_CACHE_MONITOR", "memhooks"), "disabled");
  EXPECT_EQ(AfterLoading("FI_SHM_DISABLE_CMA", "0"), "1");
}

TEST(LibfabricTest, AMissingLibraryIsNamedWithThePackageThatBringsIt) {
  const auto opened = OpenLibfabric("libnowhere.so.7");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("libnowhere.so.7"), HasSubstr("No such file"),
                    HasSubstr("install the Debian package libfabric1")));
}

TEST(LibfabricTest, ALibraryWithoutItsSymbolsIsNamedWithTheFirstThatIsMissing) {
  const auto opened = OpenLibfabric("libc.so.6");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("libc.so.6"), HasSubstr("fi_getinfo")));
}

TEST(LibfabricTest, ErrorsAreExplainedWhateverTheirSign) {
  const auto library = LoadLibfabric();
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->Explain(-61), (*library)->Explain(61));
  EXPECT_THAT((*library)->Explain(61), Not(""));
}

TEST(LibfabricTest, AnUnknownProviderIsNamedWithThoseThatAreThere) {
  OfiFabricOptions options;
  options.provider.provider = "telegraph";
  const auto fabric = OfiFabric::Open(options);
  EXPECT_EQ(fabric.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fabric.status().message()),
              AllOf(HasSubstr("telegraph"), HasSubstr("tcp;ofi_rxm")));
}

}  // namespace
}  // namespace engram::fabric::ofi
