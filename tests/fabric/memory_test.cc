#include "fabric/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace engram::fabric {
namespace {

using testing::HasSubstr;

std::unique_ptr<Slab> MakeSlab(std::uint64_t bytes) {
  auto slab = Slab::Create({.bytes = bytes, .pages = PageSize::k4KiB});
  EXPECT_TRUE(slab.ok()) << slab.status();
  return slab.ok() ? *std::move(slab) : nullptr;
}

// A second descriptor of the slab, as a reader would try to get one.
int Reopen(const Slab& slab, int flags) {
  return open(("/proc/self/fd/" + std::to_string(slab.fd())).c_str(), flags | O_CLOEXEC);
}

TEST(Slab, HasTheBytesWantedRoundedUpToPages) {
  const auto slab = MakeSlab(5000);
  EXPECT_EQ(slab->bytes(), 8192u);
  EXPECT_EQ(slab->pages(), PageSize::k4KiB);
  slab->data()[0] = std::byte{1};
  slab->data()[8191] = std::byte{2};
  std::byte last{};
  ASSERT_EQ(pread(slab->fd(), &last, 1, 8191), 1);
  EXPECT_EQ(last, std::byte{2});
}

TEST(Slab, IsPopulatedWhenItIsCreated) {
  const auto slab = MakeSlab(std::uint64_t{8} << 20);
  struct stat file {};
  ASSERT_EQ(fstat(slab->fd(), &file), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(file.st_blocks) * 512, slab->bytes());
}

TEST(Slab, NeitherShrinksNorGrowsNorCanBePunched) {
  const auto slab = MakeSlab(std::uint64_t{4} << 20);
  const auto bytes = static_cast<off_t>(slab->bytes());
  EXPECT_EQ(ftruncate(slab->fd(), bytes - 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(slab->fd(), bytes + 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(fallocate(slab->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Slab, CannotBeWrittenThroughAnyDescriptorAnyMore) {
  const auto slab = MakeSlab(4096);
  slab->data()[0] = std::byte{7};
  const int second = Reopen(*slab, O_RDWR);
  for (int fd : {slab->fd(), second}) {
    if (fd < 0) continue;
    EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
  }
  if (second >= 0) close(second);
  EXPECT_EQ(slab->data()[0], std::byte{7});
}

TEST(Slab, CannotBeSealedFurtherOrUnsealed) {
  const auto slab = MakeSlab(4096);
  EXPECT_EQ(fcntl(slab->fd(), F_GET_SEALS) & kSlabSeals, kSlabSeals);
  EXPECT_EQ(fcntl(slab->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(Slab, AReadOnlyMappingCannotBeMadeWritable) {
  const auto slab = MakeSlab(std::uint64_t{2} << 20);
  slab->data()[100] = std::byte{9};
  const int fd = Reopen(*slab, O_RDONLY);
  ASSERT_GE(fd, 0);
  std::byte* const mapped = MapSharedReadOnly(fd, slab->bytes(), 4096);
  close(fd);
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped) % (std::uint64_t{2} << 20), 0u);
  EXPECT_EQ(mapped[100], std::byte{9});
  EXPECT_EQ(mprotect(mapped, slab->bytes(), PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
  munmap(mapped, slab->bytes());
}

TEST(Slab, SaysWhatWasGrantedInsteadOfHugePages) {
  const auto slab = Slab::Create({.bytes = 1 << 20, .pages = PageSize::k1GiB});
  ASSERT_TRUE(slab.ok()) << slab.status();
  if ((*slab)->pages() == PageSize::k1GiB) GTEST_SKIP() << "this machine has free 1 GiB pages";
  EXPECT_THAT((*slab)->granted(), HasSubstr("1 GiB wanted"));
  EXPECT_THAT((*slab)->granted(), HasSubstr("nr_hugepages"));
}

TEST(Slab, RefusesToFallBackWhereThatIsNotAllowed) {
  // More than any machine has reserved.
  const auto slab = Slab::Create(
      {.bytes = std::uint64_t{1} << 45, .pages = PageSize::k2MiB, .allow_smaller_pages = false});
  ASSERT_TRUE(absl::IsResourceExhausted(slab.status())) << slab.status();
  const std::string message(slab.status().message());
  EXPECT_THAT(message, HasSubstr("32768 GiB"));
  EXPECT_THAT(message, HasSubstr("sysctl vm.nr_hugepages="));
}

TEST(Slab, RefusesMoreThanTheMachineHasInsteadOfWakingTheOomKiller) {
  const auto slab = Slab::Create({.bytes = std::uint64_t{1} << 40, .pages = PageSize::k4KiB});
  ASSERT_TRUE(absl::IsResourceExhausted(slab.status())) << slab.status();
  EXPECT_THAT(std::string(slab.status().message()), HasSubstr("of memory available"));
}

TEST(Slab, RefusesMoreThanTheNodeHasThatWasAskedFor) {
  const auto slab =
      Slab::Create({.bytes = std::uint64_t{1} << 40, .pages = PageSize::k4KiB, .numa_node = 0});
  ASSERT_TRUE(absl::IsResourceExhausted(slab.status())) << slab.status();
  EXPECT_THAT(std::string(slab.status().message()), HasSubstr("available on node 0"));
}

TEST(Slab, LiesOnTheNodeThatWasAskedFor) {
  const auto slab = Slab::Create({.bytes = 1 << 20, .pages = PageSize::k4KiB, .numa_node = 0});
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_THAT((*slab)->granted(), HasSubstr("node 0"));
}

TEST(Slab, RefusesANodeThatIsNotThere) {
  const auto slab = Slab::Create({.bytes = 4096, .pages = PageSize::k4KiB, .numa_node = 999});
  ASSERT_TRUE(absl::IsInvalidArgument(slab.status())) << slab.status();
  EXPECT_THAT(std::string(slab.status().message()), HasSubstr("NUMA node 999"));
}

TEST(Slab, RefusesNoBytes) {
  EXPECT_TRUE(absl::IsInvalidArgument(Slab::Create({.bytes = 0}).status()));
}

TEST(HostBuffer, IsWritableAlignedAndMovable) {
  auto made = HostBuffer::Create(std::uint64_t{5} << 20);
  ASSERT_TRUE(made.ok()) << made.status();
  HostBuffer buffer = *std::move(made);
  EXPECT_EQ(buffer.bytes().size(), std::uint64_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % (std::uint64_t{2} << 20), 0u);
  buffer.bytes().back() = std::byte{3};
  HostBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.bytes().back(), std::byte{3});
}

TEST(HostBuffer, MayBeEmpty) {
  auto buffer = HostBuffer::Create(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->bytes().empty());
}

TEST(HostBuffer, RefusesMoreThanTheMachineHas) {
  EXPECT_TRUE(absl::IsResourceExhausted(HostBuffer::Create(std::uint64_t{1} << 45).status()));
}

}  // namespace
}  // namespace engram::fabric
