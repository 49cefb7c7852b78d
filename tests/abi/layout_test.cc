// Where rows of a step land, and the memory that they may land in: what callers get wrong about
// both ends in InvalidArgument that names thing, value and limit.
#include "client/abi/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "client/abi/destinations.h"
#include "client/abi/memory.h"

namespace engram::client::abi {
namespace {

using ::testing::HasSubstr;

// Two layers of three columns; rows of 32 + 8 bytes.
TableShape ShapeOfTable() {
  TableShape shape;
  shape.name = "t@1";
  shape.rows = 300;
  shape.row_bytes = 40;
  shape.columns = 6;
  shape.layers = {{0, 100}, {100, 200}};
  shape.planes = {32, 8};
  return shape;
}

engram_layout LayoutOf(std::uint32_t tokens) {
  engram_layout layout{};
  layout.struct_size = sizeof layout;
  layout.max_tokens = tokens;
  return layout;
}

void ExpectInvalid(const absl::Status& status, const char* says) {
  EXPECT_EQ(StatusOf(status), ENGRAM_INVALID_ARGUMENT) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
}

// No two rows share a byte and none leaves the output, in every order, split or packed, of any
// columns.
TEST(LayoutTest, EveryRowHasAPlaceOfItsOwn) {
  for (std::uint32_t order : {ENGRAM_TOKEN_COLUMN_ROW, ENGRAM_COLUMN_TOKEN_ROW}) {
    for (std::uint32_t split : {0u, 1u}) {
      for (std::uint32_t step : {1u, 2u}) {
        engram_layout given = LayoutOf(5);
        given.order = order;
        given.split_planes = split;
        given.column_step = step;
        const auto layout = TakeLayout(ShapeOfTable(), &given);
        ASSERT_TRUE(layout.ok()) << layout.status();
        EXPECT_EQ(layout->columns, step == 1 ? 3u : 2u);
        EXPECT_EQ(layout->bytes, 2 * layout->layer_stride);
        EXPECT_EQ(layout->split_bytes(), split == 1 ? 32u : 0u);
        std::set<std::size_t> taken;
        std::size_t rows = 0;
        for (std::uint32_t layer = 0; layer < 2; ++layer) {
          for (std::uint32_t p = 0; p < layout->planes; ++p) {
            const StepLayout::PlanePlace& plane = layout->plane[p];
            EXPECT_EQ((layer * layout->layer_stride + plane.offset) % kBlockAlignment, 0u);
            for (std::uint32_t token = 0; token < 5; ++token) {
              for (std::uint32_t column = 0; column < layout->columns; ++column) {
                const std::size_t at = layer * layout->layer_stride + plane.offset +
                                       token * plane.token_stride + column * plane.column_stride;
                for (std::uint32_t i = 0; i < plane.bytes; ++i) taken.insert(at + i);
                rows += plane.bytes;
              }
            }
          }
        }
        EXPECT_EQ(taken.size(), rows);
        EXPECT_EQ(rows, std::size_t{2} * 5 * layout->columns * 40);
        EXPECT_LT(*taken.rbegin(), layout->bytes);
      }
    }
  }
}

TEST(LayoutTest, ARankTakesItsColumnsSideBySideOrInSteps) {
  engram_layout given = LayoutOf(1);
  given.first_column = 1;
  EXPECT_EQ(TakeLayout(ShapeOfTable(), &given)->columns, 2u);
  given.column_step = 2;
  EXPECT_EQ(TakeLayout(ShapeOfTable(), &given)->columns, 1u);
  given.columns = 2;
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(),
                "layout->columns is 2; from column 1 in steps of 2 table t@1 has 1 of 3 columns");
  given = LayoutOf(1);
  given.first_column = 3;
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(),
                "layout->first_column is 3; table t@1 has columns 0 to 2 in each layer");
}

TEST(LayoutTest, NamesWhatIsWrongWithIt) {
  ExpectInvalid(TakeLayout(ShapeOfTable(), nullptr).status(), "layout is NULL");
  engram_layout given = LayoutOf(0);
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(),
                "layout->max_tokens is 0; allowed are 1 to");
  given = LayoutOf(~std::uint32_t{0});
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(), "layout->max_tokens is 4294967295");
  given = LayoutOf(1);
  given.order = 2;
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(), "layout->order is 2");
  given = LayoutOf(1);
  given.split_planes = 2;
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(),
                "layout->split_planes is 2; it is 0 or 1");
  given.split_planes = 1;
  TableShape one_plane = ShapeOfTable();
  one_plane.planes = {40};
  ExpectInvalid(TakeLayout(one_plane, &given).status(), "have 1 planes, not 2");
  given = LayoutOf(1);
  TableShape flat = ShapeOfTable();
  flat.layers.clear();
  ExpectInvalid(TakeLayout(flat, &given).status(), "table t@1 has no layers");
  given.struct_size = 4;
  ExpectInvalid(TakeLayout(ShapeOfTable(), &given).status(), "layout->struct_size is 4");
}

TEST(LayoutTest, AnOutputThatIsTooSmallIsNamedWithWhatIsNeeded) {
  engram_layout given = LayoutOf(5);
  const StepLayout layout = *TakeLayout(ShapeOfTable(), &given);
  std::vector<std::byte> out(layout.bytes);
  EXPECT_TRUE(CheckPlace({&layout, out.data()}, out.size()).ok());
  ExpectInvalid(CheckPlace({&layout, out.data()}, out.size() - 1),
                "5 tokens of 3 columns in 2 layers need 1280");
  ExpectInvalid(CheckPlace({&layout, nullptr}, out.size()), "out is NULL");
}

TEST(LayoutTest, RowIdsOfAllColumnsLandWhereTheLayoutTakesThem) {
  engram_layout given = LayoutOf(2);
  given.first_column = 1;
  given.split_planes = 1;
  const StepLayout layout = *TakeLayout(ShapeOfTable(), &given);
  std::vector<std::byte> out(layout.bytes);
  const std::int32_t ids[] = {1, 2, 3, 4, 5, 6};
  engram_layer_rows rows{};
  rows.struct_size = sizeof rows;
  rows.ids = ids;
  rows.runs = 2;
  rows.id_type = ENGRAM_ID_INT32;
  rows.layer_index = 1;
  const StepPlace place{&layout, out.data()};
  const auto taken = TakeLayer(ShapeOfTable(), &rows, 0, Instant{}, place);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const ReadPart& part = taken->rows;
  EXPECT_EQ(part.ids, &ids[1]);
  EXPECT_EQ(part.run_rows, 2u);
  EXPECT_EQ(part.run_id_stride, 3u);
  EXPECT_EQ(part.out, out.data() + layout.layer_stride);
  EXPECT_EQ(part.rest, part.out + layout.plane[1].offset);
  const auto refused = [&](auto change, const char* says) {
    engram_layer_rows bad = rows;
    change(bad);
    ExpectInvalid(TakeLayer(ShapeOfTable(), &bad, 0, Instant{}, place).status(), says);
  };
  refused([&](auto& bad) { bad.out = out.data(); }, "says where its rows land");
  refused([](auto& bad) { bad.columns = 2; }, ".columns is 2; with a layout it is 0 or 3");
  refused([](auto& bad) { bad.runs = 3; }, ".runs is 3; the layout has places for 2 tokens");
  refused([](auto& bad) { bad.column_id_stride = ~std::size_t{0}; }, ".column_id_stride");
}

TEST(LayoutTest, AnIdBeyondItsLayerIsNamed) {
  const std::int64_t ids[] = {1, -1, 99, 100};
  std::vector<std::byte> out(4 * 40);
  engram_layer_rows rows{};
  rows.struct_size = sizeof rows;
  rows.ids = ids;
  rows.runs = 2;
  rows.columns = 2;
  rows.id_type = ENGRAM_ID_INT64;
  rows.layer_index = 0;
  rows.out = out.data();
  rows.out_bytes = out.size();
  ExpectInvalid(TakeLayer(ShapeOfTable(), &rows, 0, Instant{}, {}).status(),
                "step->layer_rows[0] asks for row 100 (run 1, column 1); layer index 0 of table "
                "t@1 has rows 0 to 99");
  rows.layer_index = 1;
  EXPECT_TRUE(TakeLayer(ShapeOfTable(), &rows, 0, Instant{}, {}).ok());
}

// One page that can be written, one that cannot, one that is not there.
class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + page_, page_, PROT_READ);
    munmap(memory_ + 2 * page_, page_);
  }
  ~MemoryTest() override { munmap(memory_, 2 * page_); }
  absl::StatusOr<std::uint64_t> Add(std::byte* memory, std::size_t bytes) {
    return destinations_.Add(*Destination::Register({}, {memory, bytes}));
  }

  const std::size_t page_;
  std::byte* memory_;
  Destinations destinations_;
};

TEST_F(MemoryTest, TellsReadOnlyAndUnmappedMemory) {
  EXPECT_TRUE(CheckWritable("out", memory_, page_).ok());
  EXPECT_TRUE(CheckWritable("out", memory_ + 5, 0).ok());
  ExpectInvalid(CheckWritable("out", memory_, page_ + 1), "is read-only at 0x");
  ExpectInvalid(CheckWritable("out", memory_ + 2 * page_, 1), "is not mapped at 0x");
  ExpectInvalid(CheckWritable("out", memory_, ~std::size_t{0}), "ends beyond memory");
}

TEST_F(MemoryTest, ADestinationIsCheckedWhenItIsRegistered) {
  ExpectInvalid(Destinations::Check(nullptr, 1), "memory is NULL");
  ExpectInvalid(Destinations::Check(memory_, 0), "bytes is 0");
  ExpectInvalid(Destinations::Check(memory_ + 8, 64), "a multiple of 16 bytes");
  ExpectInvalid(Destinations::Check(memory_ + page_, 64), "read-only");
  EXPECT_TRUE(Destinations::Check(memory_, page_).ok());
}

TEST_F(MemoryTest, ADestinationStaysWhileItIsUsedAndItsNumberIsNeverUsedAgain) {
  const std::uint64_t first = *Add(memory_, 128);
  auto used = *destinations_.Find(first);
  EXPECT_TRUE(Destinations::Covers(*used, memory_ + 64, 64).ok());
  ExpectInvalid(Destinations::Covers(*used, memory_ + 65, 64), "does not lie in destination 1");
  const absl::Status in_use = destinations_.Remove(first);
  EXPECT_EQ(StatusOf(in_use), ENGRAM_FAILED_PRECONDITION);
  EXPECT_THAT(std::string(in_use.message()), HasSubstr("destination 1 is in use by 1 steps"));
  used.reset();
  EXPECT_TRUE(destinations_.Remove(first).ok());
  ExpectInvalid(destinations_.Remove(first), "destination 1 is not registered");
  ExpectInvalid(destinations_.Find(first).status(), "destination 1 is not registered");
  EXPECT_EQ(*Add(memory_, 128), 2u);
}

TEST_F(MemoryTest, MemoryThatWasFreedWhileRegisteredIsFoundLater) {
  const std::uint64_t first = *Add(memory_, 128);
  ExpectInvalid(Add(memory_ + 64, 128).status(), "overlaps destination 1 (128 bytes at 0x");
  mprotect(memory_, page_, PROT_NONE);
  const absl::Status late = destinations_.Remove(first);
  EXPECT_EQ(StatusOf(late), ENGRAM_FAILED_PRECONDITION);
  EXPECT_THAT(std::string(late.message()), HasSubstr("unregistered, but too late"));
  ExpectInvalid(destinations_.Remove(first), "not registered");
}

}  // namespace
}  // namespace engram::client::abi
