// Steps through the C ABI against a real pool: every layout, every subset of columns, both doors.
#include <dlfcn.h>

#include <algorithm>

#include "checkout.h"
#include "tests/abi/pool/opened.h"

namespace engram::abi_test {
namespace {

struct Shape {
  std::uint32_t order, split, first, columns, step;
};

class LayoutsTest : public testing::TestWithParam<Shape> {
 protected:
  LayoutsTest() : opened_(nullptr) {
    layout_ = Sized<engram_layout>();
    layout_.max_tokens = 8;
    layout_.order = GetParam().order;
    layout_.split_planes = GetParam().split;
    layout_.first_column = GetParam().first;
    layout_.columns = GetParam().columns;
    layout_.column_step = GetParam().step;
    info_[0] = opened_.Layout(layout_);
    info_[1] = info_[0].planes == 2 ? opened_.Layout(layout_, 1) : engram_layout_info{};
    out_.assign(info_[0].bytes, std::byte{0xee});
    step_ = Sized<engram_step>();
    step_.layout = &layout_;
    step_.out = out_.data();
    step_.out_bytes = out_.size();
  }
  const std::byte* At(std::uint32_t plane, std::size_t layer, std::size_t token,
                      std::size_t column) const {
    const engram_layout_info& info = info_[plane];
    return &out_[info.offset + layer * info.layer_stride + token * info.token_stride +
                 column * info.column_stride];
  }
  std::vector<std::byte> Row(std::size_t layer, std::size_t token, std::size_t column) const {
    std::vector<std::byte> row(At(0, layer, token, column),
                               At(0, layer, token, column) + info_[0].plane_bytes);
    if (info_[0].planes == 2)
      row.insert(row.end(), At(1, layer, token, column),
                 At(1, layer, token, column) + info_[1].plane_bytes);
    return row;
  }
  // The column of the layer that is column `i` of the layout.
  std::size_t Column(std::size_t i) const {
    return layout_.first_column + i * std::max(1u, layout_.column_step);
  }
  void ExpectGolden(const std::vector<std::int64_t>& addresses, std::size_t tokens) {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::uint64_t first = opened_.FirstRow(static_cast<std::uint32_t>(layer));
      for (std::size_t token = 0; token < tokens; ++token) {
        for (std::size_t i = 0; i < info_[0].columns; ++i) {
          const std::int64_t id = addresses[(token * kLayers + layer) * kColumns + Column(i)];
          const auto wanted = id < 0 ? std::vector<std::byte>(kRowBytes)
                                     : Golden(first + static_cast<std::uint64_t>(id));
          ASSERT_EQ(Row(layer, token, i), wanted) << layer << " " << token << " " << i;
        }
      }
    }
    // Places of tokens that the step does not have.
    EXPECT_EQ(*At(0, 1, 7, 0), std::byte{0xee});
  }
  void Finish(engram_ticket ticket) {
    ExpectOk(engram_prefetcher_wait(opened_.Steps(), ticket, -1, 60 * kSecond));
  }

  Opened opened_;
  engram_layout layout_;
  engram_layout_info info_[2];
  std::vector<std::byte> out_;
  engram_step step_;
};

TEST_P(LayoutsTest, TokensLandWhereTheLayoutSays) {
  const std::vector<std::int64_t> ids = {22898, 19737, 270, 9327, 270};
  const engram_tokens tokens = Opened::Tokens(ids);
  step_.tokens = &tokens;
  const engram_ticket ticket = opened_.Submit(step_);
  Finish(ticket);
  ExpectGolden(opened_.Addresses(ids), ids.size());
  engram_prefetcher_release(opened_.Steps(), ticket);
}

TEST_P(LayoutsTest, RowIdsOfAllColumnsLandWhereTheLayoutSays) {
  const std::vector<std::int64_t> addresses = [&] {
    auto rows = opened_.Addresses({349, 16, 15000});
    rows[Column(1)] = -1;  // token 0, layer 0
    return rows;
  }();
  const std::vector<std::int32_t> narrow(addresses.begin(), addresses.end());
  engram_layer_rows rows[kLayers];
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    const std::uint32_t layer = 1 - i;  // in another order
    rows[i] = Sized<engram_layer_rows>();
    rows[i].ids = narrow.data() + layer * kColumns;
    rows[i].runs = 3;
    rows[i].id_stride = kLayers * kColumns;
    rows[i].layer_index = static_cast<std::int32_t>(layer);
  }
  step_.layer_rows = rows;
  step_.layers = kLayers;
  const engram_ticket ticket = opened_.Submit(step_);
  Finish(ticket);
  ExpectGolden(addresses, 3);
  std::vector<std::uint8_t> status(3 * info_[0].columns);
  std::size_t count = 0;
  ExpectOk(engram_prefetcher_row_status(opened_.Steps(), ticket, 1, status.data(), status.size(),
                                        &count));
  EXPECT_EQ(count, status.size());
  EXPECT_EQ(status[1], ENGRAM_ROW_SKIPPED);
  EXPECT_EQ(std::count(status.begin(), status.end(), ENGRAM_ROW_OK), status.size() - 1);
  engram_prefetcher_release(opened_.Steps(), ticket);
}

INSTANTIATE_TEST_SUITE_P(
    All, LayoutsTest,
    testing::Values(Shape{ENGRAM_TOKEN_COLUMN_ROW, 0, 0, 0, 0},
                    Shape{ENGRAM_COLUMN_TOKEN_ROW, 0, 0, 0, 0},
                    Shape{ENGRAM_TOKEN_COLUMN_ROW, 1, 0, 0, 0},
                    Shape{ENGRAM_COLUMN_TOKEN_ROW, 1, 6, 6, 1},  // rank 1 of 4, side by side
                    Shape{ENGRAM_TOKEN_COLUMN_ROW, 1, 3, 6, 4},  // rank 3 of 4, in steps
                    Shape{ENGRAM_COLUMN_TOKEN_ROW, 0, 2, 0, 5}));

TEST(StepsTest, IdsOfAColumnMajorArrayAreTakenByTheirStrides) {
  Opened opened("stream");
  const std::int64_t ids[] = {1, 2, 3, 10, 20, 30};  // [column][token]
  std::vector<std::byte> out(6 * kRowBytes);
  auto rows = Sized<engram_layer_rows>();
  rows.ids = ids;
  rows.runs = 3;
  rows.columns = 2;
  rows.id_type = ENGRAM_ID_INT64;
  rows.id_stride = 1;
  rows.column_id_stride = 3;
  rows.layer_index = -1;
  rows.out = out.data();
  rows.out_bytes = out.size();
  auto step = Sized<engram_step>();
  step.layer_rows = &rows;
  step.layers = 1;
  const engram_ticket ticket = opened.Submit(step);
  ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, 0, 60 * kSecond));
  const std::int64_t wanted[] = {1, 10, 2, 20, 3, 30};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::memcmp(&out[i * kRowBytes], Golden(static_cast<std::uint64_t>(wanted[i])).data(),
                          kRowBytes),
              0);
}

TEST(StepsTest, AnIdBeyondItsLayerRefusesTheStepOrFailsAlone) {
  Opened opened;
  const std::uint64_t first = opened.FirstRow(1);
  const auto beyond = static_cast<std::int32_t>(first);  // both layers have about as many rows
  const std::int32_t ids[] = {5, 2 * beyond, -1, 6};
  std::vector<std::byte> out(4 * kRowBytes);
  auto rows = Sized<engram_layer_rows>();
  rows.ids = ids;
  rows.runs = 2;
  rows.columns = 2;
  rows.layer_index = 1;
  rows.out = out.data();
  rows.out_bytes = out.size();
  auto step = Sized<engram_step>();
  step.layer_rows = &rows;
  step.layers = 1;
  engram_ticket ticket = 0;
  const std::string row = std::to_string(ids[1]);
  ExpectFails(
      engram_prefetcher_submit(opened.Steps(), &step, &ticket), ENGRAM_INVALID_ARGUMENT,
      ("asks for row " + row + " (run 0, column 1); layer index 1 of table small@1").c_str());
  step.fail_bad_ids = 2;
  ExpectFails(engram_prefetcher_submit(opened.Steps(), &step, &ticket), ENGRAM_INVALID_ARGUMENT,
              "fail_bad_ids is 2; it is 0 or 1");
  step.fail_bad_ids = 1;
  ticket = opened.Submit(step);
  ExpectFails(
      engram_prefetcher_wait(opened.Steps(), ticket, 0, 60 * kSecond), ENGRAM_INVALID_ARGUMENT,
      ("there is no row " + row + ": layer index 1 of table small@1 has rows 0 to").c_str());
  std::uint8_t status[4];
  ExpectOk(engram_prefetcher_row_status(opened.Steps(), ticket, 0, status, 4, nullptr));
  EXPECT_THAT(status, testing::ElementsAre(ENGRAM_ROW_OK, ENGRAM_ROW_FAILED, ENGRAM_ROW_SKIPPED,
                                           ENGRAM_ROW_OK));
  EXPECT_EQ(std::memcmp(&out[0], Golden(first + 5).data(), kRowBytes), 0);
  EXPECT_EQ(out[kRowBytes], std::byte{0x7f}) << "poison";
  EXPECT_EQ(out[2 * kRowBytes], std::byte{0});
  EXPECT_EQ(std::memcmp(&out[3 * kRowBytes], Golden(first + 6).data(), kRowBytes), 0);
}

TEST(StepsTest, ASlotIsUsedByOneStepAfterTheOther) {
  Opened opened;
  auto layout = Sized<engram_layout>();
  layout.max_tokens = 4;
  const std::size_t bytes = opened.Layout(layout).bytes;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, 2 * bytes));
  engram_destination destination = 0;
  ExpectOk(engram_table_register_destination(opened.table, memory, 2 * bytes, &destination));
  std::uint32_t slots[2];
  for (std::size_t i = 0; i < 2; ++i) {
    auto options = Sized<engram_slot_options>();
    options.layout = &layout;
    options.out = memory + i * bytes;
    options.out_bytes = bytes;
    options.destination = destination;
    ExpectOk(engram_prefetcher_add_slot(opened.Steps(), &options, &slots[i]));
    EXPECT_EQ(slots[i], i + 1);
  }
  engram_ticket last[2] = {};
  for (std::int64_t i = 0; i < 6; ++i) {
    const std::vector<std::int64_t> ids = {100 + i, 200 + i};
    const engram_tokens tokens = Opened::Tokens(ids);
    auto step = Sized<engram_step>();
    step.tokens = &tokens;
    step.slot = slots[i % 2];
    if (i >= 2) {
      engram_ticket refused = 1;
      ExpectFails(engram_prefetcher_submit(opened.Steps(), &step, &refused),
                  ENGRAM_RESOURCE_EXHAUSTED, "is in use: release its last step");
      EXPECT_EQ(refused, 0u);
      ExpectOk(engram_prefetcher_release(opened.Steps(), last[i % 2]));
    }
    last[i % 2] = opened.Submit(step);
    ExpectOk(engram_prefetcher_wait(opened.Steps(), last[i % 2], -1, 60 * kSecond));
    const std::uint64_t row = static_cast<std::uint64_t>(opened.Addresses(ids)[0]);
    EXPECT_EQ(std::memcmp(memory + (i % 2) * bytes, Golden(row).data(), kRowBytes), 0);
  }
  ExpectFails(engram_table_unregister_destination(opened.table, destination),
              ENGRAM_FAILED_PRECONDITION, "is in use by");
  engram_prefetcher_close(opened.prefetcher);
  opened.prefetcher = nullptr;
  ExpectOk(engram_table_unregister_destination(opened.table, destination));
  std::free(memory);
}

TEST(StepsTest, StatisticsAddUp) {
  Opened opened("stream");
  PackedStep one({1, 2, 3, 1});
  const engram_ticket ticket = opened.Submit(one.step);
  ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond));
  const engram_stats stats = opened.Stats();
  EXPECT_EQ(stats.rows_ok, 4u * kLayers * kColumns);
  EXPECT_EQ(stats.rows_ok, stats.rows_stream + stats.rows_duplicate + stats.rows_joined);
  EXPECT_EQ(stats.layers_ready, kLayers);
  EXPECT_EQ(stats.layers_failed + stats.layers_cancelled + stats.layers_late, 0u);
  EXPECT_EQ(stats.rows_failed + stats.rows_skipped + stats.rows_late, 0u);
  EXPECT_GT(stats.bytes_read, stats.rows_stream * kRowBytes);
}

TEST(StepsTest, TheLogSaysWhichNodesAreRead) {
  Log log;
  { Opened opened; }
  engram_set_log(nullptr, nullptr);
  // One of the two holds all that is needed to open the table.
  EXPECT_THAT(log.text(), testing::HasSubstr("2 node node-"));
  EXPECT_THAT(log.text(), testing::HasSubstr("read session open"));
  const std::string before = log.text();
  { Opened opened; }
  EXPECT_EQ(log.text(), before) << "nobody listens any more";
}

TEST(StepsTest, AStepNamesTheTableItIsOf) {
  Opened opened;
  auto info = Sized<engram_table_info>();
  ExpectOk(engram_table_get_info(opened.table, &info));
  PackedStep one({5});
  one.step.table_uid = info.table_uid;
  engram_prefetcher_release(opened.Steps(), opened.Submit(one.step));
  one.step.table_uid = "00000000000000000000000000000000";
  engram_ticket ticket = 0;
  ExpectFails(engram_prefetcher_submit(opened.Steps(), &one.step, &ticket),
              ENGRAM_FAILED_PRECONDITION, info.table_uid);
}

TEST(StepsTest, TwoTablesAndTwoPoolsInOneProcessDoNotMix) {
  Opened small("stream"), again("mapped"), other(nullptr, "other@1");
  PackedStep one({7, 8, 9}), two({7, 8, 9}), three({7, 8, 9});
  const engram_ticket a = small.Submit(one.step), b = again.Submit(two.step),
                      c = other.Submit(three.step);
  ExpectOk(engram_prefetcher_wait(small.Steps(), a, -1, 60 * kSecond));
  ExpectOk(engram_prefetcher_wait(again.Steps(), b, -1, 60 * kSecond));
  ExpectOk(engram_prefetcher_wait(other.Steps(), c, -1, 60 * kSecond));
  EXPECT_TRUE(one.IsGolden(small));
  EXPECT_TRUE(two.IsGolden(again));
  EXPECT_TRUE(three.IsGolden(other, kOtherSeed));
  EXPECT_EQ(small.Stats().rows_stream, 3u * kLayers * kColumns);
  EXPECT_EQ(again.Stats().rows_mapped, 3u * kLayers * kColumns);
}

TEST(StepsTest, TheLibraryLoadedAgainIsTheSame) {
  Opened opened;
  for (int i = 0; i < 2; ++i) {
    void* const library = dlopen(ENGRAM_BINARY_DIR "/lib/libengram.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    EXPECT_EQ(dlsym(library, "engram_pool_open"), reinterpret_cast<void*>(&engram_pool_open));
    EXPECT_EQ(dlclose(library), 0);
  }
  PackedStep one({7});
  ExpectOk(engram_prefetcher_wait(opened.Steps(), opened.Submit(one.step), -1, 60 * kSecond));
  EXPECT_TRUE(one.IsGolden(opened));
}

}  // namespace
}  // namespace engram::abi_test
