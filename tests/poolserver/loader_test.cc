#include "poolserver/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>

#include "engram/checkpoint/checkpoint_source.h"
#include "engram/checkpoint/writer.h"
#include "engram/sealed_row.h"
#include "engram/shard_layout.h"
#include "engram/synthetic.h"
#include "poolserver/arena.h"
#include "tests/checkpoint/temporary_folder.h"

namespace engram::poolserver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 5;

// Two layers whose columns are some shards long.
EngramGeometry Geometry() {
  EngramGeometry geometry;
  geometry.layers = {1, 4};
  geometry.base_rows = 5000;
  geometry.raw_vocab = 1000;
  return geometry;
}

// Writes a checkpoint once; rows equal those of a synthetic table of kSeed.
TableRecord CheckpointTable(const TemporaryFolder& folder) {
  CheckpointPlan plan;
  plan.directory = folder.path();
  plan.geometry = Geometry();
  plan.seed = kSeed;
  auto spec = WriteCheckpoint(plan);
  EXPECT_TRUE(spec.ok()) << spec.status();
  TableRecord table;
  table.uid.bytes.fill(7);
  table.name = {"c", "1"};
  table.spec = *spec;
  table.spec_digest = spec->Digest();
  table.options.shard_bytes = kMinShardBytes;
  table.source.kind = TableSource::Kind::kCheckpoint;
  table.source.checkpoint_dir = folder.path();
  return table;
}

TableRecord SyntheticTable(const TableRecord& like) {
  TableRecord table = like;
  table.source = TableSource{};
  table.source.seed = kSeed;
  return table;
}

// A tier that lies in no memory: keeps what is written, in an arena that only it sees.
class Blocks final : public TierStore {
 public:
  explicit Blocks(std::uint64_t capacity) : bytes_(Options(capacity)) {}
  Tier tier() const override { return Tier::kNvme; }
  absl::StatusOr<std::unique_ptr<Claim>> Reserve(const StoredRows& rows,
                                                 std::span<const Wanted> wanted) override {
    stride = rows.stride;
    auto claim = bytes_.Reserve(rows, wanted);
    if (!claim.ok()) return claim.status();
    return std::unique_ptr<Claim>(new Hidden(*std::move(claim)));
  }
  std::optional<Place> Find(const ShardKey& shard) const override { return bytes_.Find(shard); }
  absl::Status Write(const ShardKey& shard, std::uint64_t offset,
                     std::span<const std::byte> bytes) override {
    const std::uint64_t end = offset + bytes.size();
    EXPECT_EQ(offset % (kBlockRows * stride), 0u);
    EXPECT_TRUE(end % (kBlockRows * stride) == 0 || end == Find(shard)->length);
    {
      std::lock_guard lock(mutex_);  // other shards are committed meanwhile
      EXPECT_EQ(committed.count(shard), 0u) << "written after it was committed";
    }
    if (shard == refused) return absl::ResourceExhaustedError("the disk is full");
    return bytes_.Write(shard, offset, bytes);
  }
  absl::Status Commit(const ShardKey& shard, std::span<const std::uint32_t> crcs) override {
    std::lock_guard lock(mutex_);
    committed[shard].assign(crcs.begin(), crcs.end());
    return absl::OkStatus();
  }
  absl::StatusOr<const std::byte*> Read(const ShardKey& shard, std::uint64_t offset,
                                        std::uint64_t length,
                                        std::vector<std::byte>* scratch) override {
    return bytes_.Read(shard, offset, length, scratch);
  }
  absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> Rows(const ShardKey& shard) override {
    return bytes_.Rows(shard);
  }
  void Free(const ShardKey& shard) override { bytes_.Free(shard); }
  bool demands_seals() const override { return true; }
  TierCapacity capacity() override { return bytes_.capacity(); }
  std::string Describe() const override { return "blocks"; }

  std::uint32_t stride = 0;
  std::optional<ShardKey> refused;
  std::map<ShardKey, std::vector<std::uint32_t>> committed;

 private:
  struct Hidden final : Claim {
    explicit Hidden(std::unique_ptr<Claim> claim) : inner(std::move(claim)) {}
    absl::StatusOr<std::vector<Taken>> Next() override {
      auto taken = inner->Next();
      if (taken.ok()) {
        for (Taken& one : *taken) one.place.slab = nullptr;
      }
      return taken;
    }
    std::string Granted() const override { return "blocks"; }
    std::unique_ptr<Claim> inner;
  };
  static Arena::Options Options(std::uint64_t capacity) {
    Arena::Options options;
    options.capacity_bytes = capacity;
    options.slab_bytes = std::uint64_t{8} << 20;
    return options;
  }
  std::mutex mutex_;
  Arena bytes_;
};

// A loader whose answers are kept.
class Loading {
 public:
  explicit Loading(std::uint64_t capacity = std::uint64_t{256} << 20,
                   std::uint64_t stripe = std::uint64_t{1} << 20)
      : tiers_(TiersOf(capacity)),
        loader_({3, stripe}, &tiers_,
                [this](const ShardKey& shard, absl::StatusOr<std::vector<std::uint32_t>> result) {
                  std::lock_guard lock(mutex_);
                  EXPECT_EQ(ended_.count(shard), 0u) << "announced twice";
                  ended_.emplace(shard, std::move(result));
                  changed_.notify_all();
                }) {}

  std::map<ShardKey, absl::StatusOr<std::vector<std::uint32_t>>> LoadAll(const TableRecord& table) {
    const std::uint32_t count = ShardLayout(table.spec, table.options).shards();
    std::vector<ShardIndex> shards;
    for (std::uint32_t i = 0; i < count; ++i) shards.push_back(ShardIndex(i));
    return Load(table, shards);
  }
  std::map<ShardKey, absl::StatusOr<std::vector<std::uint32_t>>> Load(
      const TableRecord& table, const std::vector<ShardIndex>& shards, Tier tier = Tier::kDram) {
    loader_.Start(table, shards, tier);
    return Wait(shards.size());
  }
  Blocks& blocks() { return static_cast<Blocks&>(**tiers_.Find(Tier::kNvme)); }
  std::map<ShardKey, absl::StatusOr<std::vector<std::uint32_t>>> Wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_.size() == count; }));
    return std::move(ended_);
  }
  TierStore& tier(Tier tier) { return **tiers_.Find(tier); }
  TierStore& arena() { return tier(Tier::kDram); }
  Loader& loader() { return loader_; }

 private:
  static Tiers TiersOf(std::uint64_t capacity) {
    Arena::Options options;
    options.capacity_bytes = capacity;
    options.slab_bytes = std::uint64_t{8} << 20;
    Tiers tiers;
    tiers.Add(std::make_unique<Arena>(options));
    tiers.Add(std::make_unique<Blocks>(capacity));
    return tiers;
  }
  const Tiers tiers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ShardKey, absl::StatusOr<std::vector<std::uint32_t>>> ended_;
  Loader loader_;
};

// Every row of every shard: bytes, seal, block checksum.
void ExpectWhole(Loading& loading, const TableRecord& table,
                 const std::map<ShardKey, absl::StatusOr<std::vector<std::uint32_t>>>& ended,
                 Tier tier = Tier::kDram) {
  const ShardLayout layout(table.spec, table.options);
  const RowSealer sealer(table.uid, layout.row_bytes());
  std::vector<std::byte> want(layout.row_bytes());
  for (const auto& [shard, crcs] : ended) {
    ASSERT_TRUE(crcs.ok()) << crcs.status();
    const ShardRange range = layout.Range(shard.shard);
    const std::optional<Place> place = loading.tier(tier).Find(shard);
    ASSERT_TRUE(place.has_value());
    ASSERT_EQ(place->length, layout.StoredBytes(shard.shard));
    std::uint32_t crc = 0;
    for (std::uint64_t slot = 0; slot < range.rows; ++slot) {
      const RowId row(range.first.value() + slot);
      const std::byte* const got = place->data() + slot * layout.stride();
      FillSyntheticRow(kSeed, row, want);
      ASSERT_TRUE(std::equal(want.begin(), want.end(), got)) << "row " << row.value();
      if (layout.seal() == SealKind::kCrc32c) {
        std::uint64_t seal = 0;
        std::memcpy(&seal, got + layout.row_bytes(), sizeof seal);
        ASSERT_TRUE(sealer.Check(row, got, seal)) << "row " << row.value();
      }
      crc = Crc32c(crc, got, layout.row_bytes());
      if ((slot + 1) % kBlockRows == 0 || slot + 1 == range.rows) {
        ASSERT_EQ((*crcs)[slot / kBlockRows], crc);
        crc = 0;
      }
    }
  }
}

TEST(LoaderTest, JoinsPlanesOfACheckpointIntoSealedRows) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  Loading loading;
  ExpectWhole(loading, table, loading.LoadAll(table));
}

TEST(LoaderTest, StripesSmallerAndLargerThanAShardGiveTheSameRows) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  for (const std::uint64_t stripe : {std::uint64_t{1}, std::uint64_t{200'000}, kMaxShardBytes}) {
    Loading loading(std::uint64_t{256} << 20, stripe);
    ExpectWhole(loading, table, loading.LoadAll(table));
  }
}

TEST(LoaderTest, LoadsOnlyTheShardsAskedFor) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  Loading loading;
  const auto ended = loading.Load(table, {ShardIndex(3), ShardIndex(40), ShardIndex(1)});
  ASSERT_EQ(ended.size(), 3u);
  ExpectWhole(loading, table, ended);
  EXPECT_FALSE(loading.arena().Find({table.uid, ShardIndex(2)}).has_value());
}

TEST(LoaderTest, FillsSyntheticTablesUnsealedToo) {
  TemporaryFolder folder;
  TableRecord table = SyntheticTable(CheckpointTable(folder));
  Loading sealed;
  ExpectWhole(sealed, table, sealed.LoadAll(table));
  table.options.seal = SealKind::kNone;
  Loading plain;
  ExpectWhole(plain, table, plain.LoadAll(table));
}

TEST(LoaderTest, ATableThatDoesNotFitEndsEveryShardAndTakesNothing) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  Loading loading(kMinShardBytes);
  for (const auto& [shard, result] : loading.LoadAll(table)) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(loading.arena().capacity().allocated_bytes, 0u);
}

TEST(LoaderTest, AMissingOrTruncatedFileIsNamed) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  const auto extent = (*CheckpointSource::Open(folder.path(), ""))->Extents(0, RowId(0), 1)[0];
  std::filesystem::resize_file(extent.path, extent.offset + 1'000'000);
  Loading truncated;
  for (const auto& [shard, result] : truncated.LoadAll(table)) {
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(extent.path));
  }
  std::filesystem::remove(extent.path);
  Loading missing;
  for (const auto& [shard, result] : missing.LoadAll(table)) {
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(extent.path));
  }
}

TEST(LoaderTest, ACheckpointOfAnotherGeometryIsRefused) {
  TemporaryFolder folder;
  TableRecord table = CheckpointTable(folder);
  EngramGeometry other = Geometry();
  other.base_rows = 6000;
  other.compressed_vocab = other.raw_vocab;
  table.spec = *MakeEngramSpec(other);
  Loading loading;
  for (const auto& [shard, result] : loading.LoadAll(table)) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(LoaderTest, ACancelledShardEndsCancelledAndTheOthersWhole) {
  TemporaryFolder folder;
  const TableRecord table = SyntheticTable(CheckpointTable(folder));
  Loading loading;
  const std::uint32_t count = ShardLayout(table.spec, table.options).shards();
  std::vector<ShardIndex> shards;
  for (std::uint32_t i = 0; i < count; ++i) shards.push_back(ShardIndex(i));
  loading.loader().Start(table, shards, Tier::kDram);
  const ShardKey last{table.uid, shards.back()};
  loading.loader().Cancel(last);
  auto ended = loading.Wait(count);
  // It may have been whole before the call; then it says so.
  if (!ended.at(last).ok()) {
    EXPECT_EQ(ended.at(last).status().code(), absl::StatusCode::kCancelled);
    ended.erase(last);
  }
  ExpectWhole(loading, table, ended);
}

TEST(LoaderTest, ATierWithoutMemoryIsWrittenInWholeBlocksAndCommittedOnce) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  Loading loading;
  const ShardIndex all[] = {ShardIndex(0), ShardIndex(1), ShardIndex(2)};
  const auto ended = loading.Load(table, {all, all + 3}, Tier::kNvme);
  ExpectWhole(loading, table, ended, Tier::kNvme);
  EXPECT_EQ(loading.blocks().committed.size(), 3u);
  for (const auto& [shard, crcs] : ended) EXPECT_EQ(loading.blocks().committed[shard], *crcs);
}

TEST(LoaderTest, AShardThatCannotBeWrittenIsNotCommitted) {
  TemporaryFolder folder;
  const TableRecord table = CheckpointTable(folder);
  Loading loading(std::uint64_t{256} << 20, 1);  // a stripe a block
  loading.blocks().refused = {table.uid, ShardIndex(1)};
  auto ended = loading.Load(table, {ShardIndex(0), ShardIndex(1)}, Tier::kNvme);
  EXPECT_EQ(ended.at({table.uid, ShardIndex(1)}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loading.blocks().committed.size(), 1u);
}

TEST(LoaderTest, ATierThatOutlivesItsOwnerTakesNoUnsealedTable) {
  TemporaryFolder folder;
  TableRecord table = SyntheticTable(CheckpointTable(folder));
  table.options.seal = SealKind::kNone;
  Loading loading;
  const auto ended = loading.Load(table, {ShardIndex(0)}, Tier::kNvme);
  const absl::Status why = ended.begin()->second.status();
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("c@1 is not sealed"), HasSubstr("--seal crc32c")));
  EXPECT_EQ(loading.blocks().capacity().allocated_bytes, 0u);
}

TEST(LoaderTest, ATierThatTheNodeLacksIsNamedWithThoseItHas) {
  TemporaryFolder folder;
  const TableRecord table = SyntheticTable(CheckpointTable(folder));
  Loading loading;
  const auto ended = loading.Load(table, {ShardIndex(0)}, Tier::kCxl);
  const absl::Status why = ended.begin()->second.status();
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(why.message()), AllOf(HasSubstr("no cxl"), HasSubstr("dram, nvme")));
}

TEST(LoaderTest, StopEndsALoadInTheMiddle) {
  TemporaryFolder folder;
  const TableRecord table = SyntheticTable(CheckpointTable(folder));
  Loading loading;
  loading.loader().Start(table, {ShardIndex(0), ShardIndex(1)}, Tier::kDram);
  loading.loader().Stop();
  loading.loader().Stop();
}

TEST(DirectFileTest, ReadsAnyRangeAndNamesWhatIsMissing) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text.push_back(static_cast<char>(i * 31 >> 3));
  folder.Write("rows", text);
  auto file = DirectFile::Open(folder.File("rows"));
  ASSERT_TRUE(file.ok()) << file.status();
  ReadBuffer buffer;
  for (const auto& [offset, bytes] : {std::pair{0, 20'000}, {1, 4096}, {4095, 2}, {19'999, 1}}) {
    auto got = (*file)->Read(offset, bytes, &buffer);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(std::memcmp(*got, text.data() + offset, bytes), 0);
  }
  auto beyond = (*file)->Read(19'000, 2'000, &buffer);
  ASSERT_EQ(beyond.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(beyond.status().message()),
              AllOf(HasSubstr(folder.File("rows")), HasSubstr("19000"), HasSubstr("20000")));
  auto far = (*file)->Read(1'000'000, 10, &buffer);
  EXPECT_EQ(far.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DirectFile::Open(folder.File("nothing")).status().code(), absl::StatusCode::kNotFound);
}

TEST(DirectFileTest, AnErrorOfTheDeviceNamesFileAndOffset) {
  auto file = DirectFile::Open("/proc/self/mem");  // nothing is mapped at its first bytes
  ASSERT_TRUE(file.ok()) << file.status();
  ReadBuffer buffer;
  auto got = (*file)->Read(0, 10, &buffer);
  ASSERT_EQ(got.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(got.status().message()),
              AllOf(HasSubstr("/proc/self/mem"), HasSubstr("offset 0"), HasSubstr("error")));
}

}  // namespace
}  // namespace engram::poolserver
