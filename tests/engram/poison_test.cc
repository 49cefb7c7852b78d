#include "engram/poison.h"

#include <gtest/gtest.h>

namespace engram {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(PoisonTest, EveryDtypeHasItsNaNPattern) {
  TableSpec spec;
  spec.planes = {{"values", DType::kE4M3, 3},   {"scales", DType::kUE8M0, 2},
                 {"wide", DType::kBF16, 4},     {"packed", DType::kNVFP4, 1},
                 {"block", DType::kF8Scale, 2}, {"opaque", DType::kBytes, 1}};
  EXPECT_EQ(PoisonRow(spec),
            Bytes({0x7f, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0x7f, 0xff}));
}

TEST(PoisonTest, RowHasRowBytes) {
  TableSpec spec;
  spec.planes = {{"weight", DType::kE4M3, 256}, {"scale", DType::kUE8M0, 8}};
  EXPECT_EQ(PoisonRow(spec).size(), spec.RowBytes());
}

}  // namespace
}  // namespace engram
