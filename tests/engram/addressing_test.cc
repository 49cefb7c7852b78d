#include "engram/addressing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engram/addressing/fixed_modulus.h"
#include "engram/addressing/numpy_random.h"
#include "engram/addressing/primes.h"
#include "engram/random.h"
#include "tests/golden_vectors.h"

namespace engram {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kMapDigest[] = "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481";

EngramGeometry Flash() {
  EngramGeometry geometry;
  geometry.token_map_digest = kMapDigest;
  return geometry;
}

EngramGeometry Small() {
  EngramGeometry geometry;
  geometry.base_rows = 100;
  geometry.raw_vocab = geometry.compressed_vocab = 50;
  return geometry;
}

std::unique_ptr<Addressing> MakeSmall() { return *Addressing::Make(*MakeEngramSpec(Small()), {}); }

// Row ids as the engines count them: each layer's own table.
std::vector<std::int64_t> LayerRows(const TableSpec& spec, const Addressing& addressing,
                                    const TokenSpan& input) {
  std::vector<RowId> rows(input.tokens.size() * addressing.columns());
  EXPECT_TRUE(addressing.Rows(input, rows).ok());
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t layer = spec.columns[i % addressing.columns()].layer;
    out.push_back(static_cast<std::int64_t>(rows[i].value() - spec.LayerFirstRow(layer)));
  }
  return out;
}

TEST(EngramSpecTest, FlashHasThePublishedPrimesMultipliersAndSizes) {
  const json layout = json::parse(ReadData("dsv41_layout.json"));
  const TableSpec spec = *MakeEngramSpec(Flash());
  EXPECT_EQ(spec.RowBytes(), 264u);
  ASSERT_EQ(spec.columns.size(), 48u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t layer = spec.addressing.layers[i];
    const std::string key = std::to_string(layer);
    for (std::size_t j = 0; j < 24; ++j) {
      EXPECT_EQ(std::to_string(spec.columns[24 * i + j].rows), layout["primes"][key][j]);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(std::to_string(spec.addressing.multipliers[i][k]), layout["multipliers"][key][k]);
    }
    EXPECT_EQ(std::to_string(spec.LayerRows(layer)), layout["rows"][key]);
  }
}

TEST(DeepseekAddressingTest, PassesEveryGoldenCase) {
  const TableSpec spec = *MakeEngramSpec(Flash());
  const auto addressing = *Addressing::Make(spec, DeepseekMap());
  std::istringstream lines(ReadData("golden_addresses.jsonl"));
  std::string line;
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    const json golden = json::parse(line);
    const auto tokens = golden["ids"].get<std::vector<std::int64_t>>();
    const auto lookback = golden["lookback"].get<std::vector<std::int64_t>>();
    const auto dead = Flags(golden["dead"]);
    const auto lookback_dead = Flags(golden["lookback_dead"]);
    const auto rows = LayerRows(spec, *addressing, {tokens, dead, lookback, lookback_dead});
    EXPECT_EQ(Sha256Hex(LittleEndian(rows)), golden["sha256"]) << line.substr(0, 100);
    if (!golden.contains("rows")) continue;
    std::vector<std::int64_t> expected;
    for (const json& token : golden["rows"]) {
      for (const json& layer : token) {
        for (const json& row : layer) expected.push_back(row.get<std::int64_t>());
      }
    }
    EXPECT_EQ(rows, expected);
  }
  EXPECT_EQ(cases, 24);
}

TEST(DeepseekAddressingTest, ExplainsTheWorkedExample) {
  const TableSpec spec = *MakeEngramSpec(Flash());
  const auto addressing = *Addressing::Make(spec, DeepseekMap());
  const std::vector<std::int64_t> ids = {22898, 19737, 270,   9327,  1494, 112253, 270,
                                         15000, 406,   11999, 25670, 349,  16};
  const auto trace = *addressing->Explain({ids, {}, {}, {}});
  EXPECT_EQ(trace.compressed, (std::vector<std::int32_t>{1134, 15695, 237, 2049, 1260, 85761, 237,
                                                         12071, 36, 9745, 20232, 290, 16}));
  const auto rows = LayerRows(spec, *addressing, {ids, {}, {}, {}});
  EXPECT_EQ(Sha256Hex(LittleEndian(rows)),
            "097dc347a4d288d301bb902f88fccec987e151c003480567628334b3b61aa4e3");
  // The rolling hash of each (layer, order) leads to the rows of the last token.
  ASSERT_EQ(trace.rolling.size(), 6u);
  const std::size_t last = 12 * 48;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(trace.rolling[i].order, i % 3 + 2);
    EXPECT_EQ(trace.rolling[i].layer, i < 3 ? 1u : 14u);
    std::uint64_t first = 0;
    for (std::size_t j = i / 3 * 24; j < 8 * i; ++j) first += spec.columns[j].rows;
    const std::uint64_t row = trace.rolling[i].value % spec.columns[8 * i].rows + first;
    EXPECT_EQ(rows[last + 8 * i], static_cast<std::int64_t>(row));
  }
}

TEST(DeepseekAddressingTest, ChunkedPrefillEqualsOnePassWhereverItIsCut) {
  const TableSpec spec = *MakeEngramSpec(Small());
  const auto addressing = *Addressing::Make(spec, {});
  SeededRandom random(3);
  std::vector<std::int64_t> ids(40);
  std::vector<std::uint8_t> dead(40);
  for (auto& id : ids) id = static_cast<std::int64_t>(random.Below(50));
  for (auto& flag : dead) flag = random.Below(8) == 0;
  const auto whole = LayerRows(spec, *addressing, {ids, dead, {}, {}});
  const std::span all_ids(ids);
  const std::span<const std::uint8_t> all_dead(dead);
  for (std::size_t cut = 0; cut <= 40; ++cut) {
    const std::size_t back = std::min<std::size_t>(cut, addressing->lookback());
    const auto tail =
        LayerRows(spec, *addressing,
                  {all_ids.subspan(cut), all_dead.subspan(cut), all_ids.subspan(cut - back, back),
                   all_dead.subspan(cut - back, back)});
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + static_cast<long>(cut) * 48));
  }
}

TEST(DeepseekAddressingTest, TokenOutsideTheVocabularyIsNamedWithItsPosition) {
  const auto addressing = MakeSmall();
  std::vector<RowId> rows(3 * addressing->columns(), RowId(7));
  for (std::int64_t bad :
       {std::int64_t{-1}, std::int64_t{50}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()}) {
    const std::int64_t ids[] = {1, bad, 2};
    const absl::Status status = addressing->Rows({ids, {}, {}, {}}, rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("token at position 1 is " + std::to_string(bad) + "; the vocabulary is 0 to 49"));
    const std::int64_t fine[] = {1, 2, 3};
    EXPECT_THAT(std::string(addressing->Rows({fine, {}, ids, {}}, rows).message()),
                HasSubstr("look-back token at position 1"));
    EXPECT_FALSE(addressing->Explain({ids, {}, {}, {}}).ok());
  }
  EXPECT_EQ(rows[0], RowId(7)) << "a refused batch must not be half written";
}

TEST(DeepseekAddressingTest, WrongSizesAreRefused) {
  const auto addressing = MakeSmall();
  const std::int64_t ids[] = {1, 2};
  const std::uint8_t dead[] = {0};
  std::vector<RowId> rows(2 * addressing->columns());
  EXPECT_THAT(std::string(addressing->Rows({ids, dead, {}, {}}, rows).message()),
              HasSubstr("1 dead marks for 2 tokens"));
  rows.pop_back();
  EXPECT_THAT(std::string(addressing->Rows({ids, {}, {}, {}}, rows).message()),
              HasSubstr("2 tokens x 48 columns need 96"));
}

struct HostileSpec {
  const char* name;
  void (*change)(TableSpec&);
  const char* message;
};

class HostileSpecTest : public testing::TestWithParam<HostileSpec> {};

TEST_P(HostileSpecTest, IsRefused) {
  TableSpec spec = *MakeEngramSpec(Small());
  GetParam().change(spec);
  const auto made = Addressing::Make(spec, {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileSpecTest,
    testing::Values(
        HostileSpec{"function", [](TableSpec& s) { s.addressing.function = "x"; },
                    "\"x\" is unknown; this program knows deepseek-v4.1"},
        HostileSpec{"layers", [](TableSpec& s) { s.addressing.layers.clear(); }, "layers"},
        HostileSpec{"no_rows", [](TableSpec& s) { s.columns[3].rows = 0; }, "has 0 rows"},
        HostileSpec{"one_row", [](TableSpec& s) { s.columns[3].rows = 1; }, "at least 2"},
        HostileSpec{"huge", [](TableSpec& s) { s.columns[0].rows = ~0ull; }, "the limit is"},
        HostileSpec{"columns", [](TableSpec& s) { s.addressing.heads = 7; }, "spec has 48 columns"},
        HostileSpec{"heads", [](TableSpec& s) { s.addressing.heads = 0; }, "heads is 0"},
        HostileSpec{"heads_huge", [](TableSpec& s) { s.addressing.heads = ~0u; },
                    "heads is 4294967295"},
        HostileSpec{"order", [](TableSpec& s) { s.addressing.max_order = ~0u; }, "max_order is"},
        HostileSpec{"order_1", [](TableSpec& s) { s.addressing.max_order = 1; }, "max_order is 1"},
        HostileSpec{"pad", [](TableSpec& s) { s.addressing.pad_token = -1; }, "pad token is -1"},
        HostileSpec{"pad_huge", [](TableSpec& s) { s.addressing.pad_token = 50; },
                    "pad token is 50"},
        HostileSpec{
            "vocab",
            [](TableSpec& s) { s.addressing.raw_vocab = s.addressing.compressed_vocab = ~0ull; },
            "raw vocabulary is"},
        HostileSpec{
            "vocab_0",
            [](TableSpec& s) { s.addressing.raw_vocab = s.addressing.compressed_vocab = 0; },
            "raw vocabulary is 0"},
        HostileSpec{"no_map", [](TableSpec& s) { s.addressing.compressed_vocab = 49; },
                    "49 is not 50"},
        HostileSpec{"map_lost", [](TableSpec& s) { s.addressing.token_map_digest = "ab"; },
                    "none was given"},
        HostileSpec{"multiplier_sets", [](TableSpec& s) { s.addressing.multipliers.pop_back(); },
                    "multipliers for 1 layers"},
        HostileSpec{"multipliers", [](TableSpec& s) { s.addressing.multipliers[1].push_back(1); },
                    "has 5 multipliers"},
        HostileSpec{"negative", [](TableSpec& s) { s.addressing.multipliers[1][2] = -3; }, "is -3"},
        HostileSpec{"overflow", [](TableSpec& s) { s.addressing.multipliers[0][0] = INT64_MAX; },
                    "it must be 1 to"},
        HostileSpec{"column_order", [](TableSpec& s) { std::swap(s.columns[0], s.columns[1]); },
                    "column 0 is (order 2, head 1)"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TokenMapTest, WrongMapIsRefused) {
  EngramGeometry geometry = Small();
  geometry.compressed_vocab = 25;
  TokenMap map(50);
  for (int i = 0; i < 50; ++i) map[static_cast<std::size_t>(i)] = i / 2;
  geometry.token_map_digest = Digest(map);
  const TableSpec spec = *MakeEngramSpec(geometry);
  EXPECT_TRUE(Addressing::Make(spec, map).ok());

  const auto refused = [&](TokenMap wrong) {
    return std::string(Addressing::Make(spec, std::move(wrong)).status().message());
  };
  EXPECT_THAT(refused(TokenMap(49)), HasSubstr("49 entries"));
  TokenMap wrong = map;
  wrong[7] = 25;
  EXPECT_THAT(refused(wrong), HasSubstr("26 compressed ids; the table was made for 25"));
  wrong[7] = -1;
  EXPECT_THAT(refused(wrong), HasSubstr("entry 7 is -1"));
  wrong[7] = 4;
  EXPECT_THAT(refused(wrong), HasSubstr("has digest"));
}

TEST(EngramSpecTest, HostileGeometryIsRefused) {
  const auto refused = [](auto change) {
    EngramGeometry geometry = Small();
    change(geometry);
    return std::string(MakeEngramSpec(geometry).status().message());
  };
  EXPECT_THAT(refused([](auto& g) { g.base_rows = 0; }), HasSubstr("engram_vocab_size is 0"));
  EXPECT_THAT(refused([](auto& g) { g.base_rows = ~0ull; }), HasSubstr("engram_vocab_size is"));
  EXPECT_THAT(refused([](auto& g) { g.base_rows = kMaxColumnRows; }),
              HasSubstr("engram_vocab_size"));
  EXPECT_THAT(refused([](auto& g) { g.value_bytes = 100; }), HasSubstr("engram_head_dim is 100"));
  EXPECT_THAT(refused([](auto& g) { g.value_bytes = 1u << 31; }), HasSubstr("the limit is"));
  EXPECT_THAT(refused([](auto& g) { g.layers = {1, 1}; }), HasSubstr("listed twice"));
  EXPECT_THAT(refused([](auto& g) { g.layers.clear(); }), HasSubstr("number of layers is 0"));
  EXPECT_THAT(refused([](auto& g) { g.base_seed = ~0ull; }), HasSubstr("leaves 64 bits"));
  EXPECT_THAT(refused([](auto& g) { g.compressed_vocab = 0; }),
              HasSubstr("compressed vocabulary is 0"));
}

TEST(EngramSpecTest, AnyGeometryTakesConsecutivePrimes) {
  EngramGeometry geometry = Small();
  geometry.layers = {3, 0, 41};
  geometry.max_order = 3;
  geometry.heads = 2;
  geometry.base_rows = 2;
  const TableSpec spec = *MakeEngramSpec(geometry);
  std::vector<std::uint64_t> heights;
  for (const Column& column : spec.columns) heights.push_back(column.rows);
  EXPECT_EQ(heights, (std::vector<std::uint64_t>{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}));
  EXPECT_EQ(spec.columns[4].layer, 0u);
}

TEST(PrimesTest, AgreeWithTrialDivision) {
  for (std::uint64_t value = 0; value < 20'000; ++value) {
    bool prime = value >= 2;
    for (std::uint64_t d = 2; d * d <= value; ++d) prime = prime && value % d != 0;
    ASSERT_EQ(IsPrime(value), prime) << value;
  }
  EXPECT_FALSE(IsPrime(3'215'031'751));  // strong pseudoprime to 2, 3, 5 and 7
  EXPECT_TRUE(IsPrime(8'589'934'583));
}

TEST(FixedModulusTest, EqualsDivisionAtTheEdgesAndAtRandom) {
  SeededRandom random(4);
  std::vector<std::uint64_t> moduli = {2,
                                       3,
                                       4,
                                       5,
                                       7,
                                       8,
                                       9,
                                       16'000'057,
                                       kMaxColumnRows,
                                       kMaxColumnRows - 1,
                                       (1ull << 62) + 1,
                                       (1ull << 63) - 1};
  for (int i = 0; i < 500; ++i)
    moduli.push_back(2 + random.Below((1ull << (2 + random.Below(61)))));
  constexpr std::uint64_t kMost = (1ull << 63) - 1;
  for (std::uint64_t modulus : moduli) {
    const FixedModulus fixed(modulus);
    std::vector<std::uint64_t> values = {
        0, 1, modulus - 1, kMost, kMost - 1, kMost - kMost % modulus, kMost - kMost % modulus - 1};
    if (modulus <= kMost) values.push_back(modulus);
    for (int i = 0; i < 200; ++i) values.push_back(random.Next() >> (1 + random.Below(60)));
    for (std::uint64_t value : values)
      ASSERT_EQ(fixed(value), value % modulus) << value << " % " << modulus;
  }
}

TEST(NumpyRandomTest, EqualsDefaultRngOfNumpy) {
  // numpy.random.default_rng(seed).bit_generator.random_raw(2)
  NumpyRandom zero(0);
  EXPECT_EQ(zero.Next(), 11749869230777074271u);
  EXPECT_EQ(zero.Next(), 4976686463289251617u);
  NumpyRandom wide(0x123456789abcdef0u);
  EXPECT_EQ(wide.Next(), 3766508136411593918u);
  EXPECT_EQ(wide.Next(), 6889702652058141533u);
}

}  // namespace
}  // namespace engram
