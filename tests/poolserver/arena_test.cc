#include "poolserver/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>

namespace engram::poolserver {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TableUid Uid(std::uint8_t byte) {
  TableUid uid;
  uid.bytes.fill(byte);
  return uid;
}

Arena::Options Small(std::uint64_t capacity) {
  Arena::Options options;
  options.capacity_bytes = capacity;
  options.slab_bytes = 4 * kMiB;
  return options;
}

std::vector<Arena::Wanted> Shards(std::uint32_t first, std::uint32_t count, std::uint64_t bytes) {
  std::vector<Arena::Wanted> out;
  for (std::uint32_t i = 0; i < count; ++i) out.push_back({ShardIndex(first + i), bytes});
  return out;
}

// Takes everything of a claim.
std::vector<Arena::Taken> TakeAll(TierStore::Claim& claim) {
  std::vector<Arena::Taken> out;
  while (true) {
    auto some = claim.Next();
    EXPECT_TRUE(some.ok()) << some.status();
    if (!some.ok() || some->empty()) return out;
    out.insert(out.end(), some->begin(), some->end());
  }
}

std::vector<Arena::Taken> Load(Arena& arena, const TableUid& table,
                               const std::vector<Arena::Wanted>& wanted) {
  auto claim = arena.Reserve({table, "t@1", 256}, wanted);
  EXPECT_TRUE(claim.ok()) << claim.status();
  return claim.ok() ? TakeAll(**claim) : std::vector<Arena::Taken>{};
}

TEST(ArenaTest, GivesEveryShardItsOwnWritableBytes) {
  Arena arena(Small(16 * kMiB));
  const auto taken = Load(arena, Uid(1), Shards(0, 5, kMiB + 272));
  ASSERT_EQ(taken.size(), 5u);
  for (const auto& one : taken) {
    std::memset(one.place.data(), static_cast<int>(one.shard.value() + 1), one.place.length);
  }
  for (const auto& one : taken) {
    EXPECT_EQ(one.place.length, kMiB + 272);
    const auto expected = static_cast<std::byte>(one.shard.value() + 1);
    EXPECT_EQ(one.place.data()[0], expected);
    EXPECT_EQ(one.place.data()[one.place.length - 1], expected);
    EXPECT_EQ(arena.Find({Uid(1), one.shard})->offset, one.place.offset);
  }
}

TEST(ArenaTest, ASlabHoldsOneTableOnly) {
  Arena arena(Small(16 * kMiB));
  const auto first = Load(arena, Uid(1), Shards(0, 1, kMiB));
  const auto second = Load(arena, Uid(2), Shards(0, 1, kMiB));
  EXPECT_NE(first[0].place.slab, second[0].place.slab);
}

TEST(ArenaTest, SaysWhatDoesNotFitAndWhichSettingToRaise) {
  Arena arena(Small(3 * kMiB));
  const auto wanted = Shards(0, 4, kMiB);
  auto claim = arena.Reserve({Uid(1), "big@7", 256}, wanted);
  ASSERT_EQ(claim.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(claim.status().message()),
              testing::AllOf(HasSubstr("big@7"), HasSubstr("4194304"), HasSubstr("3.0MiB"),
                             HasSubstr("--memory")));
  EXPECT_EQ(arena.capacity().allocated_bytes, 0u);
}

TEST(ArenaTest, APromiseCountsUntilItIsGivenBack) {
  Arena arena(Small(4 * kMiB));
  {
    const auto wanted = Shards(0, 3, kMiB);
    auto claim = arena.Reserve({Uid(1), "t@1", 256}, wanted);
    ASSERT_TRUE(claim.ok());
    EXPECT_EQ(arena.capacity().allocated_bytes, 3 * kMiB);
    const auto more = Shards(0, 2, kMiB);
    EXPECT_FALSE(arena.Reserve({Uid(2), "u@1", 256}, more).ok());
  }
  EXPECT_EQ(arena.capacity().allocated_bytes, 0u);
}

TEST(ArenaTest, ARetiredPlaceIsRefilledByTheSameTableOnly) {
  Arena arena(Small(8 * kMiB));
  const auto taken = Load(arena, Uid(1), Shards(0, 4, kMiB));
  arena.Free({Uid(1), ShardIndex(2)});
  EXPECT_FALSE(arena.Find({Uid(1), ShardIndex(2)}).has_value());
  EXPECT_EQ(arena.capacity().allocated_bytes, 4 * kMiB);

  const auto other = Load(arena, Uid(2), Shards(0, 1, kMiB));
  EXPECT_NE(other[0].place.slab, taken[2].place.slab);
  const auto again = Load(arena, Uid(1), Shards(9, 1, kMiB));
  EXPECT_EQ(again[0].place.slab, taken[2].place.slab);
  EXPECT_EQ(again[0].place.offset, taken[2].place.offset);
}

TEST(ArenaTest, ASlabIsFreedWholeWithItsLastPlace) {
  Arena arena(Small(8 * kMiB));
  Load(arena, Uid(1), Shards(0, 3, kMiB));
  arena.Free({Uid(1), ShardIndex(0)});
  arena.Free({Uid(1), ShardIndex(1)});
  EXPECT_EQ(arena.capacity().allocated_bytes, 3 * kMiB);
  arena.Free({Uid(1), ShardIndex(2)});
  EXPECT_EQ(arena.capacity().allocated_bytes, 0u);
  arena.Free({Uid(1), ShardIndex(2)});  // unknown: ignored
  EXPECT_EQ(arena.capacity().allocated_bytes, 0u);
}

TEST(ArenaTest, PagesThatAReaderStillMapsAreNotFree) {
  Arena arena(Small(8 * kMiB));
  const auto taken = Load(arena, Uid(1), Shards(0, 1, kMiB));
  const std::string path = "/proc/self/fd/" + std::to_string(taken[0].place.slab->fd());
  const int reader = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  void* const mapped = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, reader, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  close(reader);
  arena.Free({Uid(1), ShardIndex(0)});
  EXPECT_EQ(arena.capacity().allocated_bytes, kMiB);
  munmap(mapped, kMiB);
  EXPECT_EQ(arena.capacity().allocated_bytes, 0u);
}

TEST(ArenaTest, CutsLargeLoadsIntoSlabs) {
  Arena arena(Small(64 * kMiB));
  const auto taken = Load(arena, Uid(1), Shards(0, 10, kMiB));
  std::set<const fabric::Slab*> slabs;
  for (const auto& one : taken) slabs.insert(one.place.slab);
  EXPECT_EQ(slabs.size(), 3u);
  const auto large = Load(arena, Uid(1), Shards(100, 1, 9 * kMiB));
  EXPECT_EQ(large[0].place.slab->bytes(), 9 * kMiB);
}

TEST(ArenaTest, AShardHasOnePlaceAtMost) {
  Arena arena(Small(8 * kMiB));
  Load(arena, Uid(1), Shards(0, 1, kMiB));
  const auto wanted = Shards(0, 1, kMiB);
  EXPECT_EQ(arena.Reserve({Uid(1), "t@1", 256}, wanted).status().code(),
            absl::StatusCode::kAlreadyExists);
}

// Two devices that are one tier; a file stands for each.
class ArenaOnDevicesTest : public testing::Test {
 protected:
  ArenaOnDevicesTest() {
    Arena::Options options = Small(2 * kDeviceBytes);
    options.tier = Tier::kCxl;
    options.capacity_setting = "--cxl-memory";
    for (std::string& path : paths_) {
      path = testing::TempDir() + "arena_device.XXXXXX";
      const int fd = mkstemp(path.data());
      EXPECT_EQ(ftruncate(fd, kDeviceBytes), 0);
      close(fd);
      auto device = fabric::DaxDevice::Open({path, kDeviceBytes, 4096, -1});
      EXPECT_TRUE(device.ok()) << device.status();
      options.devices.push_back(*std::move(device));
    }
    arena_ = std::make_unique<Arena>(options);
    devices_ = std::move(options.devices);
  }
  ~ArenaOnDevicesTest() override {
    for (const std::string& path : paths_) unlink(path.c_str());
  }
  bool LiesOn(std::size_t device, const Place& place) const {
    const std::byte* const start = devices_[device]->data();
    return place.data() >= start && place.data() + place.length <= start + kDeviceBytes;
  }

  static constexpr std::uint64_t kDeviceBytes = 8 * kMiB;
  std::string paths_[2];
  std::vector<std::shared_ptr<fabric::DaxDevice>> devices_;
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaOnDevicesTest, SlabsLieOnOneDeviceAfterTheOtherUntilBothAreFull) {
  EXPECT_THAT(arena_->Describe(), testing::AllOf(HasSubstr(paths_[0]), HasSubstr(paths_[1])));
  const auto taken = Load(*arena_, Uid(1), Shards(0, 16, kMiB));  // four slabs
  ASSERT_EQ(taken.size(), 16u);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_TRUE(LiesOn(i / 4 % 2, taken[i].place)) << "shard " << i;
  }
  EXPECT_EQ(arena_->capacity().allocated_bytes, 2 * kDeviceBytes);
  const auto more = Shards(16, 1, kMiB);
  auto claim = arena_->Reserve({Uid(1), "t@1", 256}, more);
  ASSERT_EQ(claim.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(claim.status().message()), HasSubstr("--cxl-memory"));
}

TEST_F(ArenaOnDevicesTest, ADeviceThatIsFullIsPassedOver) {
  const auto first = Load(*arena_, Uid(1), Shards(0, 1, 8 * kMiB));
  ASSERT_TRUE(LiesOn(0, first[0].place));
  for (std::uint32_t i = 1; i < 3; ++i) {
    const auto next = Load(*arena_, Uid(1), Shards(i, 1, 4 * kMiB));
    ASSERT_EQ(next.size(), 1u);
    EXPECT_TRUE(LiesOn(1, next[0].place));
  }
}

TEST_F(ArenaOnDevicesTest, ADeviceThatIsGoneIsTroubleThatNamesIt) {
  EXPECT_EQ(arena_->capacity().trouble, "");
  unlink(paths_[1].c_str());
  EXPECT_EQ(arena_->capacity().trouble, paths_[1] + " is gone");
}

}  // namespace
}  // namespace engram::poolserver
