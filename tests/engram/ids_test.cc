#include "engram/ids.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

namespace engram {
namespace {

static_assert(!std::is_convertible_v<std::uint64_t, RowId>);
static_assert(!std::is_convertible_v<RowId, std::uint64_t>);
static_assert(!std::is_constructible_v<RowId, Epoch>);

TEST(StrongIdTest, OrdersByValue) {
  EXPECT_LT(RowId(1), RowId(2));
  EXPECT_EQ(RowId(7).value(), 7u);
  EXPECT_EQ(RowId(), RowId(0));
}

TEST(Bits128Test, HexRoundTrips) {
  TableUid uid;
  for (std::size_t i = 0; i < 16; ++i) uid.bytes[i] = static_cast<std::uint8_t>(i * 17);
  EXPECT_EQ(uid.Hex(), "00112233445566778899aabbccddeeff");
  TableUid parsed;
  ASSERT_TRUE(TableUid::Parse("00112233445566778899AABBCCDDEEFF", &parsed));
  EXPECT_EQ(parsed, uid);
  EXPECT_FALSE(uid.IsZero());
  EXPECT_TRUE(TableUid().IsZero());
}

TEST(Bits128Test, OnlyExactly32HexadecimalDigitsParse) {
  TableUid uid;
  for (const char* text :
       {"", "00", "00112233445566778899aabbccddeef", "00112233445566778899aabbccddeeff0",
        "00112233445566778899aabbccddeefg", "0x112233445566778899aabbccddeeff"}) {
    EXPECT_FALSE(TableUid::Parse(text, &uid)) << text;
  }
}

TEST(ShardKeyTest, OrdersByTableThenShard) {
  TableUid second;
  second.bytes[0] = 1;
  const std::set<ShardKey> keys = {
      {second, ShardIndex(0)}, {TableUid(), ShardIndex(5)}, {TableUid(), ShardIndex(2)}};
  EXPECT_EQ(keys.begin()->shard, ShardIndex(2));
  EXPECT_EQ(keys.rbegin()->table, second);
}

}  // namespace
}  // namespace engram
