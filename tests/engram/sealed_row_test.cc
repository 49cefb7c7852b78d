#include "engram/sealed_row.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engram/random.h"

namespace engram {
namespace {

std::vector<std::byte> RandomBytes(Random& random, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random.Next());
  return out;
}

TEST(Crc32cTest, MatchesThePublishedCheckValues) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, "", 0), 0u);
}

TEST(Crc32cTest, HardwareAndTableAgreeAtEveryLengthAndAlignment) {
  SeededRandom random(1);
  const auto bytes = RandomBytes(random, 600);
  for (std::size_t length = 0; length < 560; ++length) {
    const std::byte* at = bytes.data() + length % 9;
    ASSERT_EQ(Crc32c(7, at, length), Crc32cPortable(7, at, length)) << length;
  }
}

TEST(Crc32cTest, ContinuesFromAnEarlierPart) {
  SeededRandom random(2);
  const auto bytes = RandomBytes(random, 100);
  const std::uint32_t whole = Crc32c(0, bytes.data(), 100);
  for (std::size_t cut = 0; cut <= 100; ++cut) {
    EXPECT_EQ(Crc32c(Crc32c(0, bytes.data(), cut), bytes.data() + cut, 100 - cut), whole);
  }
}

class RowSealerTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  RowSealerTest() : table_(random_.Bits<TableUidTag>()), sealer_(table_, GetParam()) {}

  void MakeRows(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      bytes_.push_back(RandomBytes(random_, GetParam()));
      ids_.push_back(RowId(random_.Next()));
      seals_.push_back(sealer_.Seal(ids_[i], bytes_[i].data()));
    }
  }
  std::size_t FailingRows() {
    std::vector<const std::byte*> rows;
    for (const auto& row : bytes_) rows.push_back(row.data());
    return sealer_.CheckBatch(ids_, rows, seals_);
  }

  SeededRandom random_{GetParam()};
  TableUid table_;
  RowSealer sealer_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<RowId> ids_;
  std::vector<std::uint64_t> seals_;
};

TEST_P(RowSealerTest, SealIsTheDocumentedFormula) {
  MakeRows(1);
  const std::uint64_t id = ids_[0].value();
  std::vector<std::uint8_t> message(table_.bytes.begin(), table_.bytes.end());
  for (int i = 0; i < 8; ++i) message.push_back(static_cast<std::uint8_t>(id >> (8 * i)));
  for (std::byte byte : bytes_[0]) message.push_back(static_cast<std::uint8_t>(byte));
  EXPECT_EQ(static_cast<std::uint32_t>(seals_[0]), Crc32c(0, message.data(), message.size()));
  EXPECT_EQ(seals_[0] >> 32, id & 0xffffffff);
}

TEST_P(RowSealerTest, EverySingleBitFlipIsFound) {
  MakeRows(1);
  for (std::size_t bit = 0; bit < GetParam() * 8; ++bit) {
    bytes_[0][bit / 8] ^= std::byte{static_cast<std::uint8_t>(1u << (bit % 8))};
    ASSERT_FALSE(sealer_.Check(ids_[0], bytes_[0].data(), seals_[0])) << bit;
    bytes_[0][bit / 8] ^= std::byte{static_cast<std::uint8_t>(1u << (bit % 8))};
  }
  EXPECT_TRUE(sealer_.Check(ids_[0], bytes_[0].data(), seals_[0]));
}

TEST_P(RowSealerTest, AnotherRowOrAnotherTableIsFound) {
  MakeRows(1);
  EXPECT_FALSE(sealer_.Check(RowId(ids_[0].value() + 1), bytes_[0].data(), seals_[0]));
  // Equal in the low 32 bits: only the checksum tells them apart.
  EXPECT_FALSE(sealer_.Check(RowId(ids_[0].value() ^ (1ull << 40)), bytes_[0].data(), seals_[0]));
  TableUid other = table_;
  other.bytes[15] ^= 1;
  EXPECT_FALSE(RowSealer(other, GetParam()).Check(ids_[0], bytes_[0].data(), seals_[0]));
}

TEST_P(RowSealerTest, BatchOfEverySizePassesAndCountsBadRows) {
  for (std::size_t count = 0; count <= 11; ++count) {
    bytes_.clear(), ids_.clear(), seals_.clear();
    MakeRows(count);
    EXPECT_EQ(FailingRows(), 0u);
    for (std::size_t broken = 0; broken < count; ++broken) {
      bytes_[broken].back() ^= std::byte{0x10};
      EXPECT_EQ(FailingRows(), 1u) << "row " << broken << " of " << count;
      bytes_[count - 1 - broken].front() ^= std::byte{0x20};
      EXPECT_EQ(FailingRows(), broken == count - 1 - broken ? 1u : 2u);
      bytes_[count - 1 - broken].front() ^= std::byte{0x20};
      bytes_[broken].back() ^= std::byte{0x10};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowBytes, RowSealerTest, testing::Values(1, 7, 64, 90, 160, 264, 512));

}  // namespace
}  // namespace engram
