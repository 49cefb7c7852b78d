#include "poolserver/nvme/row_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "poolserver/nvme/faulty_disk.h"
#include "tests/poolserver/nvme/shard_on_disk.h"

namespace engram::poolserver::nvme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RowFileHeader HeaderOfShard(const TableRecord& table, const StoredShard& shard) {
  RowFileHeader header;
  header.shard = {table.uid, ShardIndex(0)};
  header.stride = shard.layout.stride();
  header.rows = shard.range.rows;
  header.block_bytes = RowFileLayout(header.stride, header.rows).block_bytes();
  header.file_id = 77;
  header.owner = {"node-a"};
  header.spec_digest = table.spec_digest;
  return header;
}

class RowFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const int fd = Disk::System().Open(PathOf("probe"), Disk::Mode::kCreate);
    if (fd == -EINVAL) GTEST_SKIP() << folder_.path() << " has no direct I/O";
    Disk::System().Close(fd);
    Disk::System().Remove(PathOf("probe"));
  }
  // Writes the shard whole, to `name`.
  void WriteFile(const std::string& name, const StoredShard& shard, const RowFileHeader& header) {
    auto writer = RowFileWriter::Create(&Disk::System(), PathOf(name), header);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Write(0, shard.range.rows, shard.bytes.data()).ok());
    ASSERT_TRUE((*writer)->Commit(shard.crcs).ok());
  }
  std::string PathOf(const std::string& name) const { return folder_.path() + "/" + name; }
  void Overwrite(const std::string& name, std::uint64_t offset, const std::string& bytes) {
    const int fd = open(PathOf(name).c_str(), O_WRONLY);
    ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

  DiskFolder folder_;
};

TEST(RowFileLayout, NoRowStraddlesABlock) {
  for (const std::uint32_t stride : {1u, 88u, 168u, 264u, 272u, 328u, 520u, 4088u, 4089u, 15368u}) {
    const RowFileLayout layout(stride, 1000);
    for (std::uint64_t slot = 0; slot < 1000; ++slot) {
      ASSERT_LE(layout.OffsetInBlock(slot) + stride, layout.block_bytes() - kTrailerBytes);
      ASSERT_EQ(layout.FirstRowOf(layout.BlockOf(slot)) + layout.OffsetInBlock(slot) / stride,
                slot);
    }
    EXPECT_EQ(layout.block_bytes() % 4096, 0u);
  }
  EXPECT_EQ(RowFileLayout(272, 30).rows_per_block(), 15u);
  EXPECT_EQ(RowFileLayout(272, 30).blocks(), 1u + 2 + 1);
  EXPECT_EQ(RowFileLayout(4088, 3).block_bytes(), 4096u);
  EXPECT_EQ(RowFileLayout(4089, 3).block_bytes(), 8192u);
}

TEST(RowFileLayout, RowsThatAreTooLongAreRefused) {
  EXPECT_TRUE(RowFileLayout::Check(32760).ok());
  const absl::Status status = RowFileLayout::Check(32761);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("32761"));
}

TEST(RowFileName, RoundTripsAndRefusesOthers) {
  ShardKey key{{}, ShardIndex(42)}, parsed;
  key.table.bytes.fill(0xab);
  EXPECT_TRUE(ParseRowFileName(RowFileName(key), "", &parsed));
  EXPECT_EQ(parsed, key);
  EXPECT_TRUE(ParseRowFileName(RowFileName(key) + kPartialSuffix, kPartialSuffix, &parsed));
  for (const std::string& name : {std::string("LOCK"), RowFileName(key) + "x",
                                  "x" + RowFileName(key), RowFileName(key) + kPartialSuffix,
                                  std::string("abababababababababababababababab-00000000x2.rows")})
    EXPECT_FALSE(ParseRowFileName(name, "", &parsed)) << name;
}

TEST_F(RowFileTest, GivesBackWhatWasWrittenInPiecesOfAnySize) {
  const TableRecord table = SmallTable(3000);
  const StoredShard shard(table, ShardIndex(0));
  auto writer = RowFileWriter::Create(&Disk::System(), PathOf("a"), HeaderOfShard(table, shard));
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::vector<std::uint64_t> firsts;
  for (std::uint64_t first = 0; first < 3000; first += 7 + first % 300) firsts.push_back(first);
  for (std::size_t i = firsts.size(); i > 0; --i) {  // backwards
    const std::uint64_t end = i == firsts.size() ? 3000 : firsts[i];
    ASSERT_TRUE(
        (*writer)->Write(firsts[i - 1], end - firsts[i - 1], shard.row(firsts[i - 1])).ok());
  }
  EXPECT_THAT(folder_.Names(), ElementsAre("a.partial"));
  ASSERT_TRUE((*writer)->Commit(shard.crcs).ok());
  EXPECT_THAT(folder_.Names(), ElementsAre("a"));

  auto file = RowFile::Open(&Disk::System(), PathOf("a"), HeaderOfShard(table, shard));
  ASSERT_TRUE(file.ok()) << file.status();
  auto crcs = (*file)->Verify();
  ASSERT_TRUE(crcs.ok()) << crcs.status();
  EXPECT_EQ(*crcs, shard.crcs);
  std::vector<std::byte> rows(1000 * shard.layout.stride());
  ASSERT_TRUE((*file)->Read(1234, 1000, rows.data()).ok());
  EXPECT_EQ(std::memcmp(rows.data(), shard.row(1234), rows.size()), 0);
}

TEST_F(RowFileTest, AWriterThatIsGivenUpLeavesNothing) {
  const TableRecord table = SmallTable(600);
  const StoredShard shard(table, ShardIndex(0));
  {
    auto writer = RowFileWriter::Create(&Disk::System(), PathOf("a"), HeaderOfShard(table, shard));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Write(0, 256, shard.bytes.data()).ok());
    EXPECT_EQ((*writer)->Commit(shard.crcs).code(), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(folder_.Names().empty());
}

TEST_F(RowFileTest, FindsATornAStaleAndAMisplacedBlock) {
  const TableRecord table = SmallTable(600);
  const StoredShard shard(table, ShardIndex(0));
  RowFileHeader header = HeaderOfShard(table, shard);
  WriteFile("a", shard, header);
  header.file_id = 78;
  WriteFile("b", shard, header);
  const auto block = [&](const std::string& name, std::uint64_t number) {
    std::string bytes(4096, 0);
    const int fd = open(PathOf(name).c_str(), O_RDONLY);
    EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(number * 4096)), 4096);
    close(fd);
    return bytes;
  };
  const auto damaged = [&](std::uint64_t number, const std::string& bytes) {
    const std::string before = block("a", number);
    Overwrite("a", number * 4096, bytes);
    auto file = RowFile::Open(&Disk::System(), PathOf("a"), header);
    EXPECT_TRUE(file.ok()) << file.status();
    auto verified = (*file)->Verify();
    Overwrite("a", number * 4096, before);
    EXPECT_THAT(std::string(verified.status().message()),
                HasSubstr(absl::StrCat("block ", number, " of")));
    return verified.status().code() == absl::StatusCode::kDataLoss;
  };
  EXPECT_TRUE(damaged(3, block("a", 3).substr(0, 512) + std::string(3584, 0)));  // torn
  EXPECT_TRUE(damaged(3, block("a", 4)));                                        // misplaced
  EXPECT_TRUE(damaged(3, block("b", 3)));                                        // another file's
  EXPECT_TRUE(damaged(41, std::string(4096, 0)));                                // of checksums
  auto file = RowFile::Open(&Disk::System(), PathOf("a"), header);
  EXPECT_TRUE((*file)->Verify().ok());
}

TEST_F(RowFileTest, RefusesAFileOfAnotherVersionOwnerTableShardOrShape) {
  const TableRecord table = SmallTable(600);
  const StoredShard shard(table, ShardIndex(0));
  const RowFileHeader header = HeaderOfShard(table, shard);
  WriteFile("a", shard, header);
  const auto refused = [&](auto change, const char* says) {
    RowFileHeader wanted = header;
    change(wanted);
    auto file = RowFile::Open(&Disk::System(), PathOf("a"), wanted);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition) << says;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(PathOf("a")));
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(says));
  };
  refused([](RowFileHeader& h) { h.owner.name = "node-b"; }, "owner node-a instead of node-b");
  refused([](RowFileHeader& h) { h.shard.table.bytes[0] = 1; }, "table 07");
  refused([](RowFileHeader& h) { h.shard.shard = ShardIndex(3); }, "shard 0 instead of 3");
  refused([](RowFileHeader& h) { h.spec_digest[0] = 'x'; }, "spec digest");
  refused([](RowFileHeader& h) { h.rows = 599; }, "600 of 272 bytes");
  Overwrite("a", 8, std::string("\x02\0\0\0", 4));
  refused([](RowFileHeader&) {}, "format version 2 instead of 1");
}

TEST_F(RowFileTest, ADamagedOrShortHeaderIsDataLoss) {
  const TableRecord table = SmallTable(600);
  const StoredShard shard(table, ShardIndex(0));
  const RowFileHeader header = HeaderOfShard(table, shard);
  WriteFile("a", shard, header);
  Overwrite("a", 100, "x");
  EXPECT_EQ(RowFile::Open(&Disk::System(), PathOf("a"), header).status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_EQ(truncate(PathOf("a").c_str(), 512), 0);
  EXPECT_THAT(std::string(RowFile::Open(&Disk::System(), PathOf("a"), header).status().message()),
              HasSubstr("too short"));
}

TEST_F(RowFileTest, AFileSystemWithoutDirectIoIsRefused) {
  const TableRecord table = SmallTable(600);
  const StoredShard shard(table, ShardIndex(0));
  FaultyDisk disk(&Disk::System());
  disk.RefuseDirectIo();
  auto writer = RowFileWriter::Create(&disk, PathOf("a"), HeaderOfShard(table, shard));
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("no direct I/O"));
}

}  // namespace
}  // namespace engram::poolserver::nvme
