#include "poolserver/nvme/nvme_tier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engram::poolserver::nvme {
namespace {

// So that neighbours are read from their source together.
constexpr std::size_t kShardsATime = 16;

absl::Status NotThere(const ShardKey& shard) {
  return absl::NotFoundError(
      absl::StrCat("shard ", shard.shard.value(), " is not in the nvme tier"));
}

}  // namespace

class NvmeTier::ShardClaim final : public Claim {
 public:
  ShardClaim(NvmeStore* store, TableUid table, std::span<const Wanted> wanted)
      : store_(store), table_(table), wanted_(wanted.begin(), wanted.end()) {}
  ~ShardClaim() override {
    for (; next_ < wanted_.size(); ++next_) store_->Free({table_, wanted_[next_].shard});
  }

  absl::StatusOr<std::vector<Taken>> Next() override {
    std::vector<Taken> taken;
    while (next_ < wanted_.size() && taken.size() < kShardsATime) {
      const Wanted& one = wanted_[next_++];
      taken.push_back({one.shard, {nullptr, 0, one.bytes}});
      auto crcs = store_->TakeUp({table_, one.shard});
      // It took a while: whoever waits for it need not wait for others.
      if (!crcs.ok()) continue;
      taken.back().whole = *std::move(crcs);
      break;
    }
    return taken;
  }
  std::string Granted() const override { return store_->Describe(); }

 private:
  NvmeStore* const store_;
  const TableUid table_;
  const std::vector<Wanted> wanted_;
  std::size_t next_ = 0;
};

absl::StatusOr<std::unique_ptr<TierStore::Claim>> NvmeTier::Reserve(
    const StoredRows& rows, std::span<const Wanted> wanted) {
  std::vector<NvmeStore::Wanted> shards;
  for (const Wanted& one : wanted) shards.push_back({one.shard, one.bytes / rows.stride});
  if (absl::Status ok = store_->Reserve(rows, shards); !ok.ok()) return ok;
  return std::make_unique<ShardClaim>(store_.get(), rows.table, wanted);
}

std::optional<Place> NvmeTier::Find(const ShardKey& shard) const {
  const std::optional<std::uint64_t> bytes = store_->StoredBytes(shard);
  if (!bytes) return std::nullopt;
  return Place{nullptr, 0, *bytes};
}

absl::Status NvmeTier::Write(const ShardKey& shard, std::uint64_t offset,
                             std::span<const std::byte> bytes) {
  const std::uint32_t stride = store_->Stride(shard);
  if (stride == 0) return NotThere(shard);
  return store_->Write(shard, offset / stride, bytes.size() / stride, bytes.data());
}

absl::Status NvmeTier::Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs) {
  return store_->Commit(shard, block_crcs);
}

absl::StatusOr<const std::byte*> NvmeTier::Read(const ShardKey& shard, std::uint64_t offset,
                                                std::uint64_t length,
                                                std::vector<std::byte>* scratch) {
  const std::uint32_t stride = store_->Stride(shard);
  if (stride == 0) return NotThere(shard);
  if (scratch->size() < length) scratch->resize(length);
  absl::Status read = store_->Read(shard, offset / stride, length / stride, scratch->data());
  if (!read.ok()) return read;
  return scratch->data();
}

absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> NvmeTier::Rows(const ShardKey& shard) {
  auto source = store_->Source(shard);
  if (source == nullptr) return NotThere(shard);
  return source;
}

}  // namespace engram::poolserver::nvme
