#include "fabric/dax_device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fabric/memory.h"

namespace engram::fabric {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kPage = 4096;

// A tree like /sys and /dev, and a file in the place of the device.
class DaxDeviceTest : public testing::Test {
 protected:
  DaxDeviceTest() {
    std::string pattern = testing::TempDir() + "dax_device_test.XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~DaxDeviceTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  DaxDescription Device(std::uint64_t bytes) {
    Write("/dev/dax0.0", "");
    fs::resize_file(root_ + "/dev/dax0.0", bytes);
    return {root_ + "/dev/dax0.0", bytes, kPage, -1};
  }
  std::string root_;
};

TEST_F(DaxDeviceTest, TakesSizeAndAlignmentFromTheKernel) {
  Write("/dev/dax1.0", "");
  Write("/sys/bus/dax/devices/dax1.0/size", "262144000\n");
  Write("/sys/bus/dax/devices/dax1.0/align", "2097152\n");
  Write("/sys/bus/dax/devices/dax1.0/target_node", "1\n");
  const auto device = DescribeDax("/dev/dax1.0", root_);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->bytes, 262'144'000u);
  EXPECT_EQ(device->alignment, 2'097'152u);
  EXPECT_EQ(device->numa_node, 1);
}

TEST_F(DaxDeviceTest, RefusesWhatIsNoDaxDeviceAndSaysWhatItIs) {
  EXPECT_TRUE(absl::IsNotFound(DescribeDax("/dev/dax9.9", root_).status()));
  Write("/dev/dax2.0.file", "x");
  const auto file = DescribeDax("/dev/dax2.0.file", root_);
  EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
  Write("/sys/bus/dax/devices/dax3.0/size", "2097152\n");
  EXPECT_THAT(std::string(DescribeDax("/dev/dax3.0", root_).status().message()),
              HasSubstr("--mode=devdax dax3.0"));
}

TEST_F(DaxDeviceTest, RefusesASizeThatIsNotWholePages) {
  DaxDescription device = Device(3 * kPage);
  device.bytes -= 1;
  EXPECT_TRUE(absl::IsInvalidArgument(DaxDevice::Open(device).status()));
  device.bytes = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(DaxDevice::Open(device).status()));
}

TEST_F(DaxDeviceTest, RefusesAnAlignmentThatIsNoPage) {
  DaxDescription device = Device(8 * kPage);
  for (const std::uint64_t alignment : {std::uint64_t{0}, kPage / 2, 3 * kPage, kPage + 1}) {
    device.alignment = alignment;
    device.bytes = alignment == 0 ? kPage : 2 * alignment;
    const auto refused = DaxDevice::Open(device);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << alignment;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("daxctl --align"));
  }
  device.alignment = 2 * kPage;
  device.bytes = 8 * kPage;
  EXPECT_TRUE(DaxDevice::Open(device).ok());
}

TEST_F(DaxDeviceTest, HasOneOwner) {
  const DaxDescription description = Device(4 * kPage);
  auto first = DaxDevice::Open(description);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = DaxDevice::Open(description);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
  first->reset();
  EXPECT_TRUE(DaxDevice::Open(description).ok());
}

TEST_F(DaxDeviceTest, GivesOutPiecesAndTakesThemBack) {
  auto device = DaxDevice::Open(Device(8 * kPage));
  ASSERT_TRUE(device.ok()) << device.status();
  const auto a = (*device)->Take(kPage + 1), b = (*device)->Take(3 * kPage),
             c = (*device)->Take(3 * kPage);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(*a, 0u);
  EXPECT_EQ(*b, 2 * kPage);
  EXPECT_EQ(*c, 5 * kPage);
  EXPECT_TRUE(absl::IsResourceExhausted((*device)->Take(1).status()));
  (*device)->Give(*a, kPage + 1);
  (*device)->Give(*c, 3 * kPage);
  EXPECT_THAT(std::string((*device)->Take(4 * kPage).status().message()),
              HasSubstr("the largest piece has 12288"));
  (*device)->Give(*b, 3 * kPage);
  EXPECT_TRUE((*device)->Take(8 * kPage).ok());
}

TEST_F(DaxDeviceTest, ASlabLiesOnTheDeviceAndGivesItsPieceBack) {
  auto device = DaxDevice::Open(Device(8 * kPage));
  ASSERT_TRUE(device.ok()) << device.status();
  {
    auto slab = Slab::OnDevice(*device, 2 * kPage);
    ASSERT_TRUE(slab.ok()) << slab.status();
    EXPECT_EQ((*slab)->bytes(), 2 * kPage);
    EXPECT_EQ((*slab)->fd(), -1);
    (*slab)->data()[0] = std::byte{42};
    EXPECT_EQ((*device)->data()[0], std::byte{42});
    EXPECT_THAT((*slab)->granted(), HasSubstr("dax0.0"));
    EXPECT_FALSE(Slab::OnDevice(*device, 8 * kPage).ok());
  }
  EXPECT_TRUE(Slab::OnDevice(*device, 8 * kPage).ok());
}

}  // namespace
}  // namespace engram::fabric
