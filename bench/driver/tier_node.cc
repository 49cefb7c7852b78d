#include "bench/driver/tier_node.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/addressing.h"
#include "engram/synthetic.h"
#include "poolserver/row_packer.h"

namespace engram::bench {
namespace {

using poolserver::nvme::NvmeStore;

constexpr Incarnation kTierIncarnation{1};
constexpr Duration kTierDeadline = std::chrono::seconds(20);
constexpr int kTierWaitMs = 1000;

SessionToken TierToken() {
  SessionToken token;
  token.bytes.fill(3);
  return token;
}

// See TierReads.
class TierPath final : public ReadPath {
 public:
  TierPath(std::string name, const ShardLayout& layout,
           const std::vector<fabric::RemoteRegion>& regions,
           std::unique_ptr<fabric::ReadQueue> queue, std::uint32_t max_rows,
           std::uint32_t outstanding)
      : name_(std::move(name)),
        layout_(layout),
        regions_(regions),
        queue_(std::move(queue)),
        most_(std::uint64_t{max_rows} * outstanding),
        seals_(most_) {}
  const std::string& name() const override { return name_; }

  absl::Status Read(std::span<const Batch> batches) override {
    std::uint64_t started = 0, done = 0;
    for (const Batch& batch : batches) {
      while (started + batch.ids.size() > done + most_) {
        if (absl::Status ok = Collect(&done); !ok.ok()) return ok;
      }
      ops_.clear();
      for (std::size_t i = 0; i < batch.ids.size(); ++i)
        ops_.push_back(OpOf(batch.ids[i], batch.out + i * layout_.row_bytes(), started + i));
      for (std::size_t at = 0; at < ops_.size();) {
        at += queue_->Submit(std::span(ops_).subspan(at));
        if (at == ops_.size()) break;
        if (absl::Status ok = Collect(&done); !ok.ok()) return ok;
      }
      started += batch.ids.size();
    }
    while (done < started) {
      if (absl::Status ok = Collect(&done); !ok.ok()) return ok;
    }
    return absl::OkStatus();
  }

 private:
  fabric::ReadOp OpOf(RowId id, std::byte* out, std::uint64_t number) {
    const ShardSlot place = layout_.Locate(id);
    fabric::ReadOp op;
    op.region = regions_[place.shard.value()];
    op.offset = std::uint64_t{place.slot} * layout_.stride();
    op.length = layout_.stride();
    op.cookie = id.value();
    op.segments = 2;
    op.local[0] = {out, layout_.row_bytes(), nullptr};
    op.local[1] = {reinterpret_cast<std::byte*>(&seals_[number % most_]), kSealBytes, nullptr};
    return op;
  }

  absl::Status Collect(std::uint64_t* done) {
    const std::size_t count = queue_->Poll(completions_);
    for (std::size_t i = 0; i < count; ++i) {
      if (completions_[i].status == ReadStatus::kOk) continue;
      return absl::UnavailableError(absl::StrCat("row ", completions_[i].cookie, " ended as ",
                                                 std::string(Name(completions_[i].status))));
    }
    *done += count;
    if (count > 0) return absl::OkStatus();
    const int fd = queue_->ArmWait();
    if (fd < 0) return absl::OkStatus();
    pollfd wait{fd, POLLIN, 0};
    poll(&wait, 1, kTierWaitMs);
    return absl::OkStatus();
  }

  const std::string name_;
  const ShardLayout& layout_;
  const std::vector<fabric::RemoteRegion>& regions_;
  const std::unique_ptr<fabric::ReadQueue> queue_;
  const std::uint64_t most_;
  std::vector<std::uint64_t> seals_;
  std::vector<fabric::ReadOp> ops_;
  std::array<fabric::ReadCompletion, 1024> completions_;
};

}  // namespace

std::unique_ptr<ReadPath> TierReads(std::string name, const ShardLayout& layout,
                                    const std::vector<fabric::RemoteRegion>& regions,
                                    std::unique_ptr<fabric::ReadQueue> queue,
                                    std::uint32_t max_rows, std::uint32_t outstanding) {
  return std::make_unique<TierPath>(std::move(name), layout, regions, std::move(queue), max_rows,
                                    outstanding);
}

absl::StatusOr<TableRecord> TierTable(std::uint64_t base_rows, std::uint64_t seed) {
  EngramGeometry geometry;
  geometry.base_rows = base_rows;
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) return spec.status();
  TableRecord table;
  table.uid.bytes.fill(0x42);
  table.name = {"tiers", "1"};
  table.spec = *std::move(spec);
  table.spec_digest = table.spec.Digest();
  table.source.seed = seed;
  return table;
}

absl::StatusOr<std::unique_ptr<TierNode>> TierNode::Open(const TableRecord& table,
                                                         const Options& options) {
  std::unique_ptr<TierNode> node(new TierNode(table));
  if (options.memory == nullptr) {
    if (absl::Status ok = node->OpenStore(options); !ok.ok()) return ok;
  }
  if (absl::Status ok = node->Expose(options); !ok.ok()) return ok;
  return node;
}

TierNode::~TierNode() {
  fabric_.reset();
  if (target_ != nullptr) target_->Stop();
  target_.reset();
}

absl::Status TierNode::OpenStore(const Options& options) {
  std::vector<NvmeStore::Wanted> shards;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < layout_.shards(); ++i) {
    const poolserver::nvme::RowFileLayout file(layout_.stride(), layout_.Range(ShardIndex(i)).rows);
    bytes += file.file_bytes();
    shards.push_back({ShardIndex(i), layout_.Range(ShardIndex(i)).rows});
  }
  NvmeStore::Options store;
  store.owner = {"bench"};
  store.directory = options.directory;
  store.capacity_bytes = bytes;
  store.cache_bytes = options.cache_bytes;
  store.depth = options.depth;
  auto opened = NvmeStore::Open(store);
  if (!opened.ok()) return opened.status();
  store_ = *std::move(opened);
  const poolserver::StoredRows rows{table_.uid, table_.name.Full(), layout_.stride(),
                                    table_.spec_digest};
  if (absl::Status ok = store_->Reserve(rows, shards); !ok.ok()) return ok;
  for (const NvmeStore::Wanted& one : shards) {
    if (store_->TakeUp({table_.uid, one.shard}).ok()) continue;
    if (absl::Status ok = Fill(one.shard); !ok.ok()) return ok;
  }
  return absl::OkStatus();
}

absl::Status TierNode::Fill(ShardIndex shard) {
  const ShardRange range = layout_.Range(shard);
  std::vector<std::byte> bytes(range.rows * layout_.stride());
  std::vector<std::uint32_t> crcs((range.rows + kBlockRows - 1) / kBlockRows);
  for (std::uint64_t row = 0; row < range.rows; ++row) {
    FillSyntheticRow(table_.source.seed, RowId(range.first.value() + row),
                     {bytes.data() + row * layout_.stride(), layout_.row_bytes()});
  }
  poolserver::RowPacker(table_).Seal({range.first, range.rows, bytes.data(), crcs.data()});
  const ShardKey key{table_.uid, shard};
  if (absl::Status ok = store_->Write(key, 0, range.rows, bytes.data()); !ok.ok()) return ok;
  return store_->Commit(key, crcs);
}

absl::Status TierNode::Expose(const Options& options) {
  fabric::stream::StreamTargetOptions target;
  target.incarnation = kTierIncarnation;
  auto opened = fabric::stream::StreamTarget::Open(target);
  if (!opened.ok()) return opened.status();
  target_ = *std::move(opened);
  target_->Admit(TierToken());
  auto fabric = fabric::stream::StreamFabric::Open({});
  if (!fabric.ok()) return fabric.status();
  fabric_ = *std::move(fabric);
  auto peer = fabric_->AddPeer({target_->address(), TierToken(), {"bench"}, kTierIncarnation},
                               SystemClock::Get().Now() + kTierDeadline);
  if (!peer.ok()) return peer.status();
  for (std::uint32_t i = 0; i < layout_.shards(); ++i) {
    const ShardIndex shard{i};
    std::unique_ptr<fabric::stream::RowSource> source;
    if (store_ != nullptr) {
      source = store_->Source({table_.uid, shard});
    } else {
      source = std::make_unique<fabric::stream::MemoryRowSource>(
          options.memory->row(layout_.Range(shard).first));
    }
    const fabric::ExposedRegion region =
        target_->ExposeSource(std::move(source), layout_.StoredBytes(shard));
    target_->Allow(TierToken(), region.key);
    auto imported = fabric_->Import({*peer, region.address, region.length, region.key});
    if (!imported.ok()) return imported.status();
    regions_.push_back(*imported);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReadPath>> TierNode::Path(std::string name, std::uint32_t max_rows,
                                                         std::uint32_t outstanding) {
  auto queue = fabric_->OpenQueue({std::max(8192u, max_rows * outstanding), {}});
  if (!queue.ok()) return queue.status();
  return TierReads(std::move(name), layout_, regions_, *std::move(queue), max_rows, outstanding);
}

std::vector<std::string> TierNode::Files() const {
  std::vector<std::string> files;
  for (std::uint32_t i = 0; store_ != nullptr && i < layout_.shards(); ++i) {
    files.push_back(absl::StrCat(store_->directory(), "/",
                                 poolserver::nvme::RowFileName({table_.uid, ShardIndex(i)})));
  }
  return files;
}

}  // namespace engram::bench
