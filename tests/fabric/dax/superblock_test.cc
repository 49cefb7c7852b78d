#include "fabric/dax/superblock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engram/sealed_row.h"

namespace engram::fabric::dax {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Superblock Sample(std::uint64_t sequence) {
  Superblock out = *LayOutDevice(250 * kMiB, 2 * kMiB);
  out.device.bytes = {1, 2, 3};
  out.sequence = sequence;
  out.owner = NodeId{"node-a"};
  out.incarnation = Incarnation(7);
  out.nonce = 99;
  out.lease = std::chrono::seconds(10);
  return out;
}

class SuperblockTest : public testing::Test {
 protected:
  void Put(std::uint64_t slot, const Superblock& superblock) {
    const auto bytes = EncodeSuperblock(superblock);
    std::copy(bytes.begin(), bytes.end(), slots_.begin() + slot * kSlotBytes);
  }
  std::vector<std::byte> slots_ = std::vector<std::byte>(2 * kSlotBytes);
};

TEST_F(SuperblockTest, ADeviceOfZerosIsBlank) {
  const auto found = DecodeSuperblock(slots_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
}

TEST_F(SuperblockTest, IsReadAsItWasWritten) {
  Put(0, Sample(4));
  const auto found = DecodeSuperblock(slots_);
  ASSERT_TRUE(found.ok() && *found) << found.status();
  EXPECT_EQ(**found, Sample(4));
  EXPECT_EQ((*found)->Holder(), "node-a@7");
}

TEST_F(SuperblockTest, TheLaterSlotIsInForceAndATornOneLeavesTheOther) {
  Put(0, Sample(4));
  Put(1, Sample(5));
  EXPECT_EQ((*DecodeSuperblock(slots_))->sequence, 5u);
  // An update of 352 bytes that was torn at any line: the one before it stays.
  const auto whole = EncodeSuperblock(Sample(7));
  for (std::size_t written = 64; written < 352; written += 64) {
    Put(1, Sample(5));
    std::copy_n(whole.begin(), written, slots_.begin() + kSlotBytes);
    const auto found = DecodeSuperblock(slots_);
    ASSERT_TRUE(found.ok() && *found) << written;
    EXPECT_EQ((*found)->sequence, 4u) << written;
  }
}

TEST_F(SuperblockTest, EveryFlippedBitIsDamage) {
  const auto whole = EncodeSuperblock(Sample(4));
  for (std::size_t bit = 12 * 8; bit < 352 * 8; ++bit) {
    std::copy(whole.begin(), whole.end(), slots_.begin());
    slots_[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(absl::IsDataLoss(DecodeSuperblock(slots_).status())) << bit;
  }
}

// A checksum that is right says nothing of who wrote it: whatever is believed lies on the device.
TEST_F(SuperblockTest, NumbersThatMakeNoSenseAreDamageWhateverTheirChecksum) {
  constexpr std::size_t kFields[] = {12, 56, 64, 72, 80};  // owner's length, lease, the layout
  const std::uint64_t values[] = {0,
                                  1,
                                  63,
                                  64,
                                  kDirectoryOffset,
                                  254,
                                  1 << 20,
                                  250 * kMiB,
                                  250 * kMiB / 64,
                                  ~std::uint64_t{0} / 64,
                                  ~std::uint64_t{0} / 64 - 1,
                                  ~std::uint64_t{0} - 63,
                                  ~std::uint64_t{0}};
  const auto whole = EncodeSuperblock(Sample(4));
  for (const std::size_t first : kFields) {
    for (const std::size_t second : kFields) {
      for (const std::uint64_t a : values) {
        for (const std::uint64_t b : values) {
          std::copy(whole.begin(), whole.end(), slots_.begin());
          memcpy(slots_.data() + first, &a, first == 12 ? 4 : 8);
          memcpy(slots_.data() + second, &b, second == 12 ? 4 : 8);
          const std::uint32_t crc = Crc32c(0, slots_.data(), 348);
          memcpy(slots_.data() + 348, &crc, sizeof crc);
          const auto found = DecodeSuperblock(slots_);
          if (!found.ok()) continue;
          const Superblock& believed = found->value();
          ASSERT_LT(believed.owner.name.size(), 256u);
          ASSERT_GT(believed.directory_entries, 0u);
          ASSERT_LT(believed.data_offset, believed.device_bytes);
          ASSERT_LE(believed.directory_entries,
                    (believed.data_offset - kDirectoryOffset) / kExtentBytes);
          ASSERT_GE(believed.lease, Duration::zero());
        }
      }
    }
  }
}

TEST_F(SuperblockTest, RefusesAnotherVersionAndWhatIsNotOurs) {
  Put(0, Sample(4));
  slots_[8] = std::byte{2};
  const auto version = DecodeSuperblock(slots_);
  EXPECT_TRUE(absl::IsFailedPrecondition(version.status()));
  EXPECT_THAT(std::string(version.status().message()), HasSubstr("format version 2"));
  slots_[0] = std::byte{'X'};
  const auto foreign = DecodeSuperblock(slots_);
  EXPECT_TRUE(absl::IsFailedPrecondition(foreign.status()));
  EXPECT_THAT(std::string(foreign.status().message()), HasSubstr("somebody else's data"));
}

TEST_F(SuperblockTest, GivesEachMebibyteALineOfTheDirectory) {
  const auto layout = LayOutDevice(250 * kMiB, 2 * kMiB);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->directory_entries, 250u);
  EXPECT_EQ(layout->data_offset, 2 * kMiB);
  EXPECT_EQ(LayOutDevice(std::uint64_t{1} << 40, 2 * kMiB)->directory_entries, 1u << 20);
  EXPECT_TRUE(absl::IsInvalidArgument(LayOutDevice(16384, 4096).status()));
}

TEST(ExtentTest, IsReadAsItWasWrittenAndNothingElseIs) {
  const Extent extent{12345, 2 * kMiB, 4096, {{{9, 8, 7}}, ShardIndex(3)}, 99};
  auto line = EncodeExtent(extent);
  EXPECT_EQ(DecodeExtent(line), extent);
  for (std::size_t bit = 0; bit < kExtentBytes * 8; ++bit) {
    auto damaged = line;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(DecodeExtent(damaged)) << bit;
  }
  line.fill(std::byte{0});
  EXPECT_FALSE(DecodeExtent(line));
}

TEST(DeviceAddressTest, NamesTheDeviceAndNothingElse) {
  DeviceUuid device;
  device.bytes = {0xab, 0xcd};
  EXPECT_EQ(ParseDeviceAddress(FormatDeviceAddress(device)), device);
  EXPECT_FALSE(ParseDeviceAddress("@engram-1234"));
  EXPECT_FALSE(ParseDeviceAddress("device:abc"));
}

}  // namespace
}  // namespace engram::fabric::dax
