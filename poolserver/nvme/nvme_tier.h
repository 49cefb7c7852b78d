// The NVMe store as a tier of a node: what TierStore promises, in the store's words. Holds no logic
// of its own. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poolserver/nvme/nvme_store.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver::nvme {

class NvmeTier final : public TierStore {
 public:
  explicit NvmeTier(std::unique_ptr<NvmeStore> store) : store_(std::move(store)) {}
  const NvmeStore& store() const { return *store_; }

  Tier tier() const override { return Tier::kNvme; }
  // Shards that an earlier start left are handed out whole.
  absl::StatusOr<std::unique_ptr<Claim>> Reserve(const StoredRows& rows,
                                                 std::span<const Wanted> wanted) override;
  std::optional<Place> Find(const ShardKey& shard) const override;
  absl::Status Write(const ShardKey& shard, std::uint64_t offset,
                     std::span<const std::byte> bytes) override;
  absl::Status Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs) override;
  absl::StatusOr<const std::byte*> Read(const ShardKey& shard, std::uint64_t offset,
                                        std::uint64_t length,
                                        std::vector<std::byte>* scratch) override;
  absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> Rows(const ShardKey& shard) override;
  void Free(const ShardKey& shard) override { store_->Free(shard); }
  // Blocks carry checksums that name file, table and place.
  bool demands_seals() const override { return false; }
  TierCapacity capacity() override { return store_->capacity(); }
  std::string Describe() const override { return store_->Describe(); }

 private:
  class ShardClaim;

  const std::unique_ptr<NvmeStore> store_;
};

}  // namespace engram::poolserver::nvme
