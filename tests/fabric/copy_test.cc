#include "fabric/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace engram::fabric {
namespace {

std::vector<std::byte> Numbers(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

TEST(Copy, CopiesEveryLengthAndNothingMore) {
  const auto from = Numbers(700);
  for (std::size_t bytes = 1; bytes < 600; ++bytes) {
    std::vector<std::byte> to(bytes + 64, std::byte{0xee});
    CopyPiece(to.data() + 3, from.data() + 5, bytes);
    ASSERT_TRUE(std::equal(from.begin() + 5, from.begin() + 5 + bytes, to.begin() + 3)) << bytes;
    ASSERT_EQ(to[2], std::byte{0xee});
    ASSERT_EQ(to[bytes + 3], std::byte{0xee}) << bytes;
  }
}

TEST(Copy, GathersPiecesApartAndLeavesZerosForMissingRows) {
  const auto memory = Numbers(272 * 20);
  std::vector<const std::byte*> from;
  for (std::size_t i = 0; i < 20; ++i) from.push_back(memory.data() + (i * 7 % 20) * 272);
  from[4] = nullptr;
  std::vector<std::byte> rows(264 * 20, std::byte{0xee}), seals(8 * 20, std::byte{0xee});
  const std::uint32_t pieces[] = {264, 8};
  std::byte* const to[] = {rows.data(), seals.data()};
  GatherRows(from, pieces, to);
  for (std::size_t i = 0; i < 20; ++i) {
    const std::vector<std::byte> missing(272);
    const std::byte* wanted = i == 4 ? missing.data() : from[i];
    EXPECT_TRUE(std::equal(wanted, wanted + 264, rows.data() + i * 264)) << i;
    EXPECT_TRUE(std::equal(wanted + 264, wanted + 272, seals.data() + i * 8)) << i;
  }
}

TEST(Copy, ScattersWhatWasPacked) {
  const auto packed = Numbers(264 * 9);
  std::vector<std::byte> memory(300 * 9);
  std::vector<std::byte*> to;
  for (std::size_t i = 0; i < 9; ++i) to.push_back(memory.data() + (8 - i) * 300);
  ScatterPieces(packed.data(), 264, to);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(std::equal(to[i], to[i] + 264, packed.data() + i * 264)) << i;
  }
}

}  // namespace
}  // namespace engram::fabric
