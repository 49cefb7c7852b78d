// A tier of memory: the kernel's (dram, or cxl as a NUMA node) or that of DAX devices (cxl).
//
// An arena owns slabs. A slab holds replicas of ONE table, in places of fixed size; a freed place
// may be taken again by another shard of the same table, and a slab whose places are all free is
// given back to the kernel whole, never punched or shrunk. Memory never passes from one table to
// another inside a slab. Bytes count as free only when the kernel has the pages back: a slab that a
// reader's process still maps stays on the account until that process lets go.
//
// A slab on a device is free at once: whoever mapped the device has let go of it by then (leases).
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/node_protocol.h"
#include "fabric/dax_device.h"
#include "fabric/memory.h"
#include "poolserver/tier_store.h"

namespace engram::poolserver {

class Arena final : public TierStore {
 public:
  struct Options {
    Tier tier = Tier::kDram;
    std::uint64_t capacity_bytes = 0;
    fabric::PageSize pages = fabric::PageSize::k4KiB;
    bool allow_smaller_pages = true;
    int numa_node = -1;
    // Slabs lie here and nowhere else, on one after the other; `pages` is then their alignment.
    // None: memory of the kernel.
    std::vector<std::shared_ptr<fabric::DaxDevice>> devices;
    // A slab is about this large, at least one page and one replica. Small enough that one is made
    // while another is filled, large enough that a table has few.
    std::uint64_t slab_bytes = std::uint64_t{256} << 20;
    std::string capacity_setting = "--memory";  // what messages tell the operator to raise
    std::uint64_t read_bytes_per_second = 0;    // of rows, by all readers; 0: not known
  };
  // Slabs are made (and populated) by Next, one at a time: the places of one call lie in one slab,
  // unless they are reused ones.
  class Claim final : public TierStore::Claim {
   public:
    ~Claim() override;
    absl::StatusOr<std::vector<Taken>> Next() override;
    std::string Granted() const override { return granted_; }

   private:
    friend class Arena;
    struct Part {
      std::vector<Taken> taken;
      std::uint64_t slab_bytes = 0;  // 0: places of slabs that exist
    };
    Claim(Arena* arena, TableUid table, std::vector<Part> parts);

    Arena* arena_;
    TableUid table_;
    std::vector<Part> parts_;
    std::size_t next_ = 0;
    std::string granted_;  // of the first slab
  };

  explicit Arena(Options options);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tier tier() const override { return options_.tier; }
  absl::StatusOr<std::unique_ptr<TierStore::Claim>> Reserve(
      const StoredRows& rows, std::span<const Wanted> wanted) override;
  std::optional<Place> Find(const ShardKey& shard) const override;
  absl::Status Write(const ShardKey& shard, std::uint64_t offset,
                     std::span<const std::byte> bytes) override;
  absl::Status Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs) override;
  absl::StatusOr<const std::byte*> Read(const ShardKey& shard, std::uint64_t offset,
                                        std::uint64_t length,
                                        std::vector<std::byte>* scratch) override;
  absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> Rows(const ShardKey& shard) override;
  void Free(const ShardKey& shard) override;
  // A device keeps what an earlier owner left, and other hosts may write to it.
  bool demands_seals() const override { return !options_.devices.empty(); }
  TierCapacity capacity() override;
  std::string Describe() const override;

 private:
  struct TableSlab {
    std::unique_ptr<fabric::Slab> slab;
    TableUid table;
    std::uint64_t used_places = 0;
    std::map<std::uint64_t, std::uint64_t> free_places;  // offset -> bytes
  };
  // A slab of ours that is unmapped here, while its pages may live on in a reader's process.
  struct Lingering {
    int fd = -1;
    std::uint64_t bytes = 0;
  };

  std::vector<Taken> TakeFreed(const TableUid& table, std::span<const Wanted> wanted,
                               std::vector<bool>* placed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Claim::Part> Cut(std::span<const Wanted> wanted,
                               const std::vector<bool>& placed) const;
  absl::StatusOr<std::unique_ptr<fabric::Slab>> NewSlab(const TableUid& table, std::uint64_t bytes);
  absl::Status MakeSlab(const TableUid& table, Claim::Part* part);
  void Record(const TableUid& table, std::span<const Taken> taken);
  void Abandon(const Claim::Part& part);
  // Returns the slab when this was its last place; the caller hands it to Retire, unlocked.
  std::unique_ptr<fabric::Slab> FreePlace(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::unique_ptr<fabric::Slab> slab);
  void ForgetReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::map<const fabric::Slab*, TableSlab> slabs_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardKey, Place> places_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lingering> lingering_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t next_device_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::poolserver
