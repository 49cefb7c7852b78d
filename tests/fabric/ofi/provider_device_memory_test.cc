// Memory of a GPU with libfabric, on a machine that has none: what is refused, and how it is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "fabric/ofi/ofi_fabric.h"

namespace engram::fabric::ofi {
namespace {

using testing::HasSubstr;

TEST(OfiDeviceMemoryTest, AFabricThatWasNotOpenedForItSaysSo) {
  auto fabric = OfiFabric::Open({});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_FALSE((*fabric)->info().device_memory);
  std::array<std::byte, 4096> memory;
  const auto refused = (*fabric)->Register(memory, {MemoryKind::Place::kCuda, 0});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("not opened for memory of a GPU"));
  EXPECT_TRUE((*fabric)->Register(memory, {}).ok());
}

// Providers differ in where they find out: at the opening, or when the memory is registered.
TEST(OfiDeviceMemoryTest, WithoutAGpuItIsRefusedWithAReasonAndNeverCopiedThroughTheHost) {
  OfiFabricOptions options;
  options.provider.device_memory = true;
  auto fabric = OfiFabric::Open(options);
  if (!fabric.ok()) {
    EXPECT_EQ(fabric.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(fabric.status().message()), HasSubstr("FI_HMEM"));
    return;
  }
  std::array<std::byte, 4096> memory;
  const auto refused = (*fabric)->Register(memory, {MemoryKind::Place::kCuda, 0});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("read into host memory instead"));
}

}  // namespace
}  // namespace engram::fabric::ofi
