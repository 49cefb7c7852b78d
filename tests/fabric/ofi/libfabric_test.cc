#include "fabric/ofi/libfabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
