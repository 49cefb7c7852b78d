#include "client/gpu/row_functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "client/gpu/plans.h"
#include "engram/poison.h"
#include "engram/random.h"
#include "engram/sealed_row.h"

namespace engram::client::gpu {
namespace {

// ---- dequantise ----

float FloatOfBf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// By the definitions of the formats, in double; both factors and their product are exact there.
double Exact(std::uint8_t value, std::uint8_t scale) {
  const int field = value >> 3 & 15, mantissa = value & 7;
  const double magnitude =
      field == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, field - 10);
  return std::ldexp((value & 0x80) != 0 ? -magnitude : magnitude, scale - 127);
}

// The BF16 number nearest to `exact`, ties to even.
std::uint16_t Rounded(double exact) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(DequantiseTest, EveryPairOfValueAndScaleIsTheRoundedProduct) {
  int not_a_number = 0, infinite = 0, subnormal = 0;
  for (int value = 0; value < 256; ++value) {
    for (int scale = 0; scale < 256; ++scale) {
      const auto v = static_cast<std::uint8_t>(value);
      const auto s = static_cast<std::uint8_t>(scale);
      const std::uint16_t bits = DequantiseBf16(v, s, {});
      if ((value & 0x7f) == 0x7f || scale == 255) {
        ASSERT_TRUE(std::isnan(FloatOfBf16(bits))) << value << ", " << scale;
        ++not_a_number;
        continue;
      }
      ASSERT_EQ(bits, Rounded(Exact(v, s))) << value << ", " << scale;
      infinite += std::isinf(FloatOfBf16(bits));
      subnormal += std::fpclassify(FloatOfBf16(bits)) == FP_SUBNORMAL;
    }
  }
  EXPECT_EQ(not_a_number, 2 * 256 + 256 - 2);
  EXPECT_GT(infinite, 0);
  EXPECT_GT(subnormal, 0);
}

TEST(DequantiseTest, ScaleByteZeroIsZeroOnlyWhereTheRuleSaysSo) {
  for (int value = 0; value < 256; ++value) {
    const auto v = static_cast<std::uint8_t>(value);
    DequantiseRule rule;
    rule.zero_scale_is_zero = true;
    const float zero = FloatOfBf16(DequantiseBf16(v, 0, rule));
    if ((value & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(zero));
    } else {
      EXPECT_EQ(zero, 0.0f);
      EXPECT_EQ(std::signbit(zero), value >= 128);
    }
    EXPECT_EQ(DequantiseBf16(v, 1, rule), DequantiseBf16(v, 1, {}));
  }
  EXPECT_EQ(FloatOfBf16(DequantiseBf16(0x38, 0, {})), std::ldexp(1.0f, -127));
}

TEST(DequantiseTest, NegativeZeroIsFoldedOnlyWhereTheRuleSaysSo) {
  DequantiseRule fold;
  fold.fold_negative_zero = true;
  EXPECT_EQ(DequantiseBf16(0x80, 127, {}), 0x8000);
  EXPECT_EQ(DequantiseBf16(0x80, 127, fold), 0);
  EXPECT_EQ(DequantiseBf16(0x81, 0, fold), 0) << "rounded to zero";
  EXPECT_EQ(DequantiseBf16(0xb8, 127, fold), 0xbf80);
}

// ---- seals ----

// Lane `at` of so many.
struct LaneOf {
  std::uint32_t at, count;
  std::uint32_t lane() const { return at; }
  std::uint32_t lanes() const { return count; }
};

TEST(SealRowTest, EqualsTheSealsOfTheOwnersForEveryWidthAndAnyNumberOfLanes) {
  SeededRandom random(5);
  TableUid uid;
  for (std::uint8_t& byte : uid.bytes) byte = static_cast<std::uint8_t>(random.Next());
  for (const std::uint32_t width : {1u, 7u, 8u, 9u, 90u, 160u, 264u, 512u, 8192u, 100'003u}) {
    std::vector<std::uint64_t> words(width / 8 + 1);
    for (std::uint64_t& word : words) word = random.Next();
    const auto* row = reinterpret_cast<const std::byte*>(words.data());
    const RowId id(random.Next() >> 29);
    const std::uint64_t seal = RowSealer(uid, width).Seal(id, row);
    const SealArrays arrays(uid, width);
    const SealPlan plan = arrays.view();
    EXPECT_EQ(SealOf(plan, id.value(), row, OneLane()), seal) << width;
    for (const std::uint32_t lanes : {2u, 31u, 32u, 64u}) {
      std::uint32_t sum = plan.start;
      for (std::uint32_t lane = 0; lane < lanes; ++lane)
        sum ^= SealLane(plan, id.value(), row, LaneOf{lane, lanes});
      EXPECT_EQ(~sum, static_cast<std::uint32_t>(seal)) << width << " in " << lanes;
    }
  }
}

TEST(SealRowTest, AnyFlippedBitAndAnyOtherRowOrTableIsFound) {
  const TableUid uid{{1, 2, 3}};
  std::vector<std::uint64_t> words(33, 0x0123456789abcdef);
  auto* row = reinterpret_cast<std::byte*>(words.data());
  const SealArrays arrays(uid, 264), other(TableUid{{1, 2, 4}}, 264);
  const std::uint64_t seal = SealOf(arrays.view(), 7, row, OneLane());
  EXPECT_NE(SealOf(arrays.view(), 8, row, OneLane()), seal);
  EXPECT_NE(SealOf(other.view(), 7, row, OneLane()), seal);
  for (std::uint32_t bit = 0; bit < 264 * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    row[bit / 8] ^= mask;
    EXPECT_NE(SealOf(arrays.view(), 7, row, OneLane()), seal) << bit;
    row[bit / 8] ^= mask;
  }
}

// ---- delivery ----

constexpr RowFormat kRowFormat{64};  // 64 values, 2 scales
constexpr std::size_t kStride = 80;
constexpr std::uint64_t kFirstRow = 1000;

class DeliverRowTest : public testing::Test {
 protected:
  DeliverRowTest() : seals_(TableUid{{9}}, kRowFormat.row_bytes()), words_(kRows * kStride / 8) {
    for (std::uint64_t& word : words_) word = random_.Next();
    landing_.rows = reinterpret_cast<std::byte*>(words_.data());
    landing_.row_stride = kStride;
  }
  std::byte* Row(std::uint32_t at) {
    return reinterpret_cast<std::byte*>(words_.data()) + at * kStride;
  }
  void Seal(std::uint32_t at, std::uint64_t id) {
    const std::uint64_t seal =
        RowSealer(TableUid{{9}}, kRowFormat.row_bytes()).Seal(RowId(id), Row(at));
    std::memcpy(Row(at) + kRowFormat.row_bytes(), &seal, sizeof seal);
  }
  Bf16Output Bf16() {
    Bf16Output out;
    out.rows = reinterpret_cast<std::uint16_t*>(bf16_.data());
    out.row_stride = kRowFormat.value_bytes;
    out.format = kRowFormat;
    return out;
  }
  void ExpectBf16(std::uint32_t at, std::uint32_t source) {
    for (std::uint32_t i = 0; i < kRowFormat.value_bytes; ++i) {
      const auto value = static_cast<std::uint8_t>(Row(source)[i]);
      const auto scale = static_cast<std::uint8_t>(Row(source)[kRowFormat.value_bytes + i / 32]);
      ASSERT_EQ(Bits(at, i), DequantiseBf16(value, scale, {})) << at << ", element " << i;
    }
  }
  std::uint16_t Bits(std::uint32_t at, std::uint32_t i) {
    return bf16_[(at * kRowFormat.value_bytes + i) / 8].bits[i % 8];
  }
  void ExpectAll(std::uint32_t at, std::uint16_t bits) {
    for (std::uint32_t i = 0; i < kRowFormat.value_bytes; ++i) ASSERT_EQ(Bits(at, i), bits);
  }

  static constexpr std::uint32_t kRows = 6;
  SeededRandom random_{21};
  SealArrays seals_;
  std::vector<std::uint64_t> words_;
  std::vector<Bf16Output::Eight> bf16_ =
      std::vector<Bf16Output::Eight>(kRows * kRowFormat.value_bytes / 8);
  Landing landing_;
};

TEST_F(DeliverRowTest, RowsAreGatheredAndDequantised) {
  const std::int32_t source[] = {4, 0, -1, 4};
  landing_.source = source;
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(DeliverRow(landing_, i, false, Bf16(), i, OneLane()),
              i == 2 ? RowOutcome::kSkipped : RowOutcome::kDelivered);
  }
  ExpectBf16(0, 4);
  ExpectBf16(1, 0);
  ExpectAll(2, 0);
  ExpectBf16(3, 4);
}

TEST_F(DeliverRowTest, SkippedIdsAreZerosAndFailedRowsAreNaN) {
  const std::int32_t ids[] = {5, -1, 7, 8};
  const std::uint8_t failed[] = {0, 1, 1, 0};
  landing_.ids32 = ids;
  landing_.failed = failed;
  EXPECT_EQ(DeliverRow(landing_, 0, false, Bf16(), 0, OneLane()), RowOutcome::kDelivered);
  EXPECT_EQ(DeliverRow(landing_, 1, false, Bf16(), 1, OneLane()), RowOutcome::kSkipped);
  EXPECT_EQ(DeliverRow(landing_, 2, false, Bf16(), 2, OneLane()), RowOutcome::kFailed);
  EXPECT_EQ(DeliverRow(landing_, 3, true, Bf16(), 3, OneLane()), RowOutcome::kFailed);
  ExpectBf16(0, 0);
  ExpectAll(1, 0);
  ExpectAll(2, kBf16Nan);
  ExpectAll(3, kBf16Nan);
}

TEST_F(DeliverRowTest, ARowWithAWrongSealIsNaN) {
  const std::int64_t ids[] = {5, 6, 7};
  landing_.ids64 = ids;
  landing_.first_row = kFirstRow;
  landing_.check_seals = true;
  landing_.seal = seals_.view();
  Seal(0, kFirstRow + 5);
  Seal(1, kFirstRow + 5);  // another row's
  Seal(2, kFirstRow + 7);
  Row(2)[3] ^= std::byte{4};
  EXPECT_EQ(DeliverRow(landing_, 0, false, Bf16(), 0, OneLane()), RowOutcome::kDelivered);
  EXPECT_EQ(DeliverRow(landing_, 1, false, Bf16(), 1, OneLane()), RowOutcome::kCorrupt);
  EXPECT_EQ(DeliverRow(landing_, 2, false, Bf16(), 2, OneLane()), RowOutcome::kCorrupt);
  ExpectBf16(0, 0);
  ExpectAll(1, kBf16Nan);
  ExpectAll(2, kBf16Nan);
}

TEST_F(DeliverRowTest, ThePoisonOfTheReaderIsNaNInEveryElement) {
  EngramGeometry geometry;
  geometry.value_bytes = kRowFormat.value_bytes;
  const TableSpec spec = *MakeEngramSpec(geometry);
  EXPECT_EQ(FormatOf(spec)->row_bytes(), kRowFormat.row_bytes());
  const std::vector<std::byte> poison = PoisonRow(spec);
  std::memcpy(Row(0), poison.data(), poison.size());
  DeliverRow(landing_, 0, false, Bf16(), 0, OneLane());
  ExpectAll(0, kBf16Nan);
}

TEST_F(DeliverRowTest, ManyLanesWriteWhatOneLaneWrites) {
  for (std::uint32_t lane = 0; lane < 32; ++lane) Bf16().Deliver(0, Row(0), LaneOf{lane, 32});
  ExpectBf16(0, 0);
  for (std::uint32_t lane = 0; lane < 32; ++lane) Bf16().Fill(0, true, LaneOf{lane, 32});
  ExpectAll(0, kBf16Nan);
}

TEST_F(DeliverRowTest, PlanesAreSplitAndHaveTheirOwnPoison) {
  std::vector<std::uint64_t> values(kRows * kRowFormat.value_bytes / 8);
  std::vector<std::byte> scales(kRows * kRowFormat.scale_bytes());
  PlanesOutput out;
  out.values = reinterpret_cast<std::byte*>(values.data());
  out.scales = scales.data();
  out.format = kRowFormat;
  const std::int32_t ids[] = {1, 2, -1, 4};
  const std::uint8_t failed[] = {0, 0, 0, 1};
  landing_.ids32 = ids;
  landing_.failed = failed;
  for (std::uint32_t i = 0; i < 4; ++i) DeliverRow(landing_, i, false, out, i, OneLane());
  const auto expect = [&](std::uint32_t i, auto value, auto scale) {
    for (std::uint32_t k = 0; k < kRowFormat.value_bytes; ++k)
      ASSERT_EQ(out.values[i * kRowFormat.value_bytes + k], value(k));
    for (std::uint32_t k = 0; k < kRowFormat.scale_bytes(); ++k)
      ASSERT_EQ(out.scales[i * kRowFormat.scale_bytes() + k], scale(k));
  };
  for (std::uint32_t i = 0; i < 2; ++i) {
    expect(
        i, [&](std::uint32_t k) { return Row(i)[k]; },
        [&](std::uint32_t k) { return Row(i)[kRowFormat.value_bytes + k]; });
  }
  const auto zero = [](std::uint32_t) { return std::byte{0}; };
  expect(2, zero, zero);
  expect(
      3, [](std::uint32_t) { return std::byte{kE4M3Nan}; },
      [](std::uint32_t) { return std::byte{kUe8m0Nan}; });
}

TEST(FormatOfTest, OtherRowsAreRefused) {
  TableSpec spec = *MakeEngramSpec({});
  spec.planes = {{"rows", DType::kBF16, 512}};
  EXPECT_EQ(FormatOf(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.planes = {{"weight", DType::kE4M3, 256}, {"scale", DType::kUE8M0, 16}};
  EXPECT_EQ(FormatOf(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace engram::client::gpu
