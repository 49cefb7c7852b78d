// A pool node's loop with an nvme tier alone: loads, serves over stream, scrubs, starts again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "fabric/stream/stream_target.h"
#include "poolserver/node_loop.h"
#include "poolserver/nvme/nvme_tier.h"
#include "tests/poolserver/nvme/shard_on_disk.h"
#include "tests/poolserver/small_node.h"

namespace engram::poolserver::nvme {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kLoadedSeed = 11;
constexpr Incarnation kNvmeIncarnation{7};

TableRecord LoadedTable() {
  TableRecord table = TableOf(9);
  table.spec_digest = table.spec.Digest();
  table.source.seed = kLoadedSeed;
  return table;
}

// A node as its program puts it together, without gRPC; the controller's words are the test's.
class NvmeNode {
 public:
  explicit NvmeNode(const std::string& directory)
      : tiers_(Nvme(directory)),
        target_(Target()),
        exposure_(OwnedTarget(), target_),
        random_(1),
        loop_(Options(), {}, &tiers_, &exposure_, &SystemClock::Get(), &random_, nullptr,
              Outlets()) {
    loop_.Post(ControllerConnected{});
    loop_.Post(ControllerSaid{
        NodeWelcome{kNvmeIncarnation, FencingToken(3), std::chrono::milliseconds(1), seconds(5)}});
  }
  ~NvmeNode() { loop_.Stop(); }

  void Load(std::vector<ShardIndex> shards) {
    loop_.Post(ControllerSaid{
        Command{1, kNvmeIncarnation, FencingToken(3),
                LoadReplicas{LoadedTable(), std::move(shards), Tier::kNvme, std::nullopt, {}}}});
  }
  ReplicaReport Await(ReplicaState state) {
    std::unique_lock lock(mutex_);
    const auto find = [&] {
      return std::find_if(reports_.begin(), reports_.end(),
                          [&](const ReplicaReport& report) { return report.state == state; });
    };
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return find() != reports_.end(); }));
    return find() == reports_.end() ? ReplicaReport() : *find();
  }
  void Nudge() { loop_.Post(Timer{}); }
  const NvmeStore& store() const {
    return static_cast<const NvmeTier&>(**tiers_.Find(Tier::kNvme)).store();
  }
  std::string said() {
    std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  Tiers Nvme(const std::string& directory) {
    NvmeStore::Options options;
    options.owner = {"node-0"};
    options.directory = directory;
    options.capacity_bytes = 64 << 20;
    options.cache_bytes = 4 << 20;
    Tiers tiers;
    auto store = NvmeStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    if (store.ok()) tiers.Add(std::make_unique<NvmeTier>(*std::move(store)));
    return tiers;
  }
  fabric::stream::StreamTarget* Target() {
    auto target = fabric::stream::StreamTarget::Open({});
    EXPECT_TRUE(target.ok()) << target.status();
    owned_ = *std::move(target);
    return owned_.get();
  }
  std::vector<std::unique_ptr<fabric::Target>> OwnedTarget() {
    std::vector<std::unique_ptr<fabric::Target>> targets;
    targets.push_back(std::move(owned_));
    return targets;
  }
  NodeOptions Options() {
    NodeOptions options;
    options.node = {"node-0"};
    options.process_nonce = "abc";
    options.paths = exposure_.paths();
    options.tiers = tiers_.capacity();
    options.scrub_bytes_per_second = std::uint64_t{1} << 30;
    return options;
  }
  NodeOutlets Outlets() {
    NodeOutlets outlets;
    outlets.to_controller = [this](const NodeToController& message) {
      const auto* beat = std::get_if<NodeHeartbeat>(&message);
      if (beat == nullptr) return;
      loop_.Post(ControllerSaid{HeartbeatSeen{beat->sequence, Epoch(1)}});
      std::lock_guard lock(mutex_);
      for (const ReplicaReport& report : beat->changed) reports_.push_back(report);
      changed_.notify_all();
    };
    outlets.exit = [](const absl::Status&) {};
    outlets.say = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      said_ += line + "\n";
    };
    return outlets;
  }

  std::unique_ptr<fabric::stream::StreamTarget> owned_;
  const Tiers tiers_;
  fabric::stream::StreamTarget* const target_;
  Exposure exposure_;
  SeededRandom random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReplicaReport> reports_;
  std::string said_;
  NodeLoop loop_;
};

class NvmeNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NvmeStore::Options options;
    options.owner = {"node-0"};
    options.directory = folder_.path();
    auto store = NvmeStore::Open(options);
    if (absl::IsFailedPrecondition(store.status())) GTEST_SKIP() << store.status().message();
  }

  DiskFolder folder_;
};

TEST_F(NvmeNodeTest, LoadsAndServesFromTheDevice) {
  NvmeNode node(folder_.path());
  node.Load({ShardIndex(1)});
  const ReplicaReport serving = node.Await(ReplicaState::kServing);
  ASSERT_TRUE(serving.error.ok()) << serving.error;
  EXPECT_EQ(serving.tier, Tier::kNvme);
  const StoredShard shard(LoadedTable(), ShardIndex(1), kLoadedSeed);
  EXPECT_EQ(serving.block_crcs, shard.crcs);
  EXPECT_THAT(folder_.Names(), ::testing::ElementsAre(RowFileName(serving.shard), "LOCK"));
  std::vector<std::byte> rows(shard.bytes.size());
  ASSERT_TRUE(node.store().Read(serving.shard, 0, shard.range.rows, rows.data()).ok());
  EXPECT_EQ(rows, shard.bytes);
}

TEST_F(NvmeNodeTest, ANodeThatStartsAgainTakesUpWhatItHad) {
  {
    NvmeNode node(folder_.path());
    node.Load({ShardIndex(1)});
    ASSERT_TRUE(node.Await(ReplicaState::kServing).error.ok());
  }
  NvmeNode node(folder_.path());
  node.Load({ShardIndex(1)});
  const ReplicaReport serving = node.Await(ReplicaState::kServing);
  ASSERT_TRUE(serving.error.ok()) << serving.error;
  EXPECT_EQ(serving.block_crcs, StoredShard(LoadedTable(), ShardIndex(1), kLoadedSeed).crcs);
  EXPECT_EQ(node.store().counters().written_bytes, 0u);
}

TEST_F(NvmeNodeTest, TheScrubberFindsADamagedBlockAndTheFileGoes) {
  NvmeNode node(folder_.path());
  node.Load({ShardIndex(1)});
  const ReplicaReport serving = node.Await(ReplicaState::kServing);
  ASSERT_TRUE(serving.error.ok()) << serving.error;
  const int fd = open((folder_.path() + "/" + RowFileName(serving.shard)).c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "damage", 6, 100 * 4096), 6);
  close(fd);
  node.Nudge();
  node.Await(ReplicaState::kRetired);
  EXPECT_EQ(node.Await(ReplicaState::kDraining).error.code(), absl::StatusCode::kDataLoss);
}

TEST_F(NvmeNodeTest, AStrangersFileFailsTheLoadAndStays) {
  TableRecord table = LoadedTable();
  {
    NvmeStore::Options options;
    options.owner = {"node-9"};
    options.directory = folder_.path();
    options.capacity_bytes = 64 << 20;
    auto store = NvmeStore::Open(options);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(ReserveShards(**store, table, {ShardIndex(1)}).ok());
    ASSERT_TRUE(Put(**store, {table.uid, ShardIndex(1)}, StoredShard(table, ShardIndex(1))).ok());
  }
  NvmeNode node(folder_.path());
  node.Load({ShardIndex(1)});
  const ReplicaReport failed = node.Await(ReplicaState::kRetired);
  EXPECT_EQ(failed.error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failed.error.message()), ::testing::HasSubstr("node-9"));
  EXPECT_THAT(folder_.Names(),
              ::testing::ElementsAre(RowFileName({table.uid, ShardIndex(1)}), "LOCK"));
}

}  // namespace
}  // namespace engram::poolserver::nvme
