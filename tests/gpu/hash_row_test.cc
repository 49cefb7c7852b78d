#include "client/gpu/hash_row.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "client/gpu/plans.h"
#include "engram/random.h"
#include "tests/golden_vectors.h"

namespace engram::client::gpu {
namespace {

using nlohmann::json;

std::vector<std::int64_t> Flattened(const json& value) {
  if (!value.is_array()) return {value.get<std::int64_t>()};
  std::vector<std::int64_t> out;
  for (const json& part : value) {
    const auto inner = Flattened(part);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

TableSpec SmallSpec() {
  EngramGeometry geometry;
  geometry.base_rows = 100;
  geometry.raw_vocab = geometry.compressed_vocab = 50;
  return *MakeEngramSpec(geometry);
}

// Look-back of one sequence as a kernel gets it: a fixed number of entries, negative where there is
// nothing.
struct Before {
  Before(const HashPlan& plan, const std::vector<std::int64_t>& tokens,
         const std::vector<std::uint8_t>& flags)
      : ids(plan.lookback(), -1), dead(plan.lookback(), 0) {
    for (std::size_t back = 1; back <= std::min(ids.size(), tokens.size()); ++back) {
      ids[ids.size() - back] = tokens[tokens.size() - back];
      if (!flags.empty()) dead[dead.size() - back] = flags[flags.size() - back];
    }
  }
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> dead;
};

std::vector<std::int64_t> AllRows(const HashPlan& plan, const TokenBatch& batch) {
  std::vector<std::int64_t> rows;
  for (std::uint32_t token = 0; token < batch.count; ++token) {
    const TokenWindow window = WindowOf(plan, batch, token);
    for (std::uint32_t layer = 0; layer < plan.layer_count; ++layer) {
      for (std::uint32_t column = 0; column < plan.columns_per_layer(); ++column)
        rows.push_back(HashRow(plan, window, layer, column));
    }
  }
  return rows;
}

TEST(HashRowTest, PassesEveryGoldenCase) {
  EngramGeometry geometry;
  geometry.token_map_digest = Digest(DeepseekMap());
  const auto arrays = HashArrays::Make(*MakeEngramSpec(geometry), DeepseekMap());
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const HashPlan plan = arrays->view();
  std::istringstream lines(ReadData("golden_addresses.jsonl"));
  std::string line;
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    const json golden = json::parse(line);
    const auto tokens = golden["ids"].get<std::vector<std::int64_t>>();
    const auto dead = Flags(golden["dead"]);
    const Before before(plan, golden["lookback"].get<std::vector<std::int64_t>>(),
                        Flags(golden["lookback_dead"]));
    TokenBatch batch;
    batch.tokens = tokens.data();
    batch.dead = dead.empty() ? nullptr : dead.data();
    batch.count = static_cast<std::uint32_t>(tokens.size());
    batch.before = before.ids.data();
    batch.before_dead = before.dead.data();
    const std::vector<std::int64_t> rows = AllRows(plan, batch);
    EXPECT_EQ(Sha256Hex(LittleEndian(rows)), golden["sha256"]) << "case " << cases;
    if (golden.contains("rows")) {
      EXPECT_EQ(rows, Flattened(golden["rows"])) << "case " << cases;
    }
  }
  EXPECT_EQ(cases, 24);
}

// What the CPU's address function says, counted in each layer's own table.
std::vector<std::int64_t> Reference(const TableSpec& spec, const TokenSpan& input) {
  const auto addressing = *Addressing::Make(spec, {});
  std::vector<RowId> rows(input.tokens.size() * addressing->columns());
  EXPECT_TRUE(addressing->Rows(input, rows).ok());
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t layer = spec.columns[i % addressing->columns()].layer;
    out.push_back(static_cast<std::int64_t>(rows[i].value() - spec.LayerFirstRow(layer)));
  }
  return out;
}

TEST(HashRowTest, ManySequencesInOneBatchEqualTheAddressFunctionOfEach) {
  const TableSpec spec = SmallSpec();
  const HashArrays arrays = *HashArrays::Make(spec, {});
  const HashPlan plan = arrays.view();
  SeededRandom random(11);
  std::vector<std::int64_t> tokens, before, expected;
  std::vector<std::uint8_t> dead, before_dead;
  std::vector<std::uint32_t> first, sequence;
  const auto draw = [&](std::vector<std::int64_t>& ids, std::vector<std::uint8_t>& flags) {
    ids.push_back(static_cast<std::int64_t>(random.Below(50)));
    flags.push_back(random.Below(6) == 0);
  };
  for (std::uint32_t i = 0; i < 60; ++i) {
    std::vector<std::int64_t> ids, lookback;
    std::vector<std::uint8_t> flags, lookback_flags;
    for (std::uint64_t n = random.Below(plan.lookback() + 1); n > 0; --n)
      draw(lookback, lookback_flags);
    for (std::uint64_t n = 1 + random.Below(6); n > 0; --n) draw(ids, flags);
    const auto rows = Reference(spec, {ids, flags, lookback, lookback_flags});
    expected.insert(expected.end(), rows.begin(), rows.end());
    first.push_back(static_cast<std::uint32_t>(tokens.size()));
    sequence.insert(sequence.end(), ids.size(), i);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    dead.insert(dead.end(), flags.begin(), flags.end());
    const Before fixed(plan, lookback, lookback_flags);
    before.insert(before.end(), fixed.ids.begin(), fixed.ids.end());
    before_dead.insert(before_dead.end(), fixed.dead.begin(), fixed.dead.end());
  }
  TokenBatch batch;
  batch.tokens = tokens.data();
  batch.dead = dead.data();
  batch.count = static_cast<std::uint32_t>(tokens.size());
  batch.sequence = sequence.data();
  batch.first = first.data();
  batch.before = before.data();
  batch.before_dead = before_dead.data();
  EXPECT_EQ(AllRows(plan, batch), expected);
}

TEST(HashRowTest, ATokenThatIsDeadByItsIdBlocksWhatIsOlderAndItsRowsMayBeSkipped) {
  const TableSpec spec = SmallSpec();
  const HashArrays arrays = *HashArrays::Make(spec, {});
  const std::int64_t tokens[] = {3, 4, 7, 5, 6};
  const std::uint8_t dead[] = {0, 0, 1, 0, 0};
  TokenBatch batch;
  batch.tokens = tokens;
  batch.count = 5;
  HashPlan plan = arrays.view();
  plan.dead_token = 7;
  EXPECT_EQ(AllRows(plan, batch), Reference(spec, {tokens, dead, {}, {}}));
  plan.skip_dead = true;
  const auto rows = AllRows(plan, batch);
  const std::size_t width = plan.layer_count * plan.columns_per_layer();
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i] == kSkippedRow, i / width == 2) << i;
}

TEST(HashRowTest, ATokenOutsideTheVocabularyNeverBecomesARowOfTheTable) {
  const HashArrays arrays = *HashArrays::Make(SmallSpec(), {});
  const HashPlan plan = arrays.view();
  for (const std::int64_t bad :
       {std::int64_t{50}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()}) {
    const std::int64_t tokens[] = {1, bad, 2, 3, 4, 5};
    TokenBatch batch;
    batch.tokens = tokens;
    batch.count = 6;
    for (std::uint32_t token = 0; token < 6; ++token) {
      const bool sees_it = token >= 1 && token <= 1 + plan.lookback();
      EXPECT_EQ(HashRow(plan, WindowOf(plan, batch, token), 1, 3) == kNoSuchRow, sees_it) << token;
    }
  }
}

TEST(HashRowTest, OtherAddressFunctionsAreRefused) {
  TableSpec spec = SmallSpec();
  spec.addressing.function = "identity";
  EXPECT_EQ(HashArrays::Make(spec, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HashArrays::Make(SmallSpec(), TokenMap(3)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace engram::client::gpu
