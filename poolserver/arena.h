// The memory of one tier of a pool node: where replicas lie, and how much of it is left.
//
// An arena owns slabs. A slab holds replicas of ONE table, in places of fixed size; a freed place
// may be taken again by another shard of the same table, and a slab whose places are all free is
// given back to the kernel whole, never punched or shrunk. Memory never passes from one table to
// another inside a slab. Bytes count as free only when the kernel has the pages back: a slab that a
// reader's process still maps stays on the account until that process lets go.
//
// The arena does not know sessions, leases or what a replica's state is: who frees a place has made
// sure that nobody reads it any more. Thread-safe.
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

namespace engram::poolserver {

// The bytes of one replica. Valid until Arena::Free.
struct Place {
  const fabric::Slab* slab = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // as asked for

  std::byte* data() const { return slab->data() + offset; }
};

class Arena {
 public:
  struct Options {
    Tier tier = Tier::kDram;
    std::uint64_t capacity_bytes = 0;
    fabric::PageSize pages = fabric::PageSize::k4KiB;
    bool allow_smaller_pages = true;
    int numa_node = -1;
    // Slabs lie here and nowhere else; `pages` is then its alignment. Null: memory of the kernel.
    std::shared_ptr<fabric::DaxDevice> device;
    // A slab is about this large, at least one page and one replica. Small enough that one is made
    // while another is filled, large enough that a table has few.
    std::uint64_t slab_bytes = std::uint64_t{256} << 20;
    std::string capacity_setting = "--memory";  // what messages tell the operator to raise
  };
  struct Wanted {
    ShardIndex shard;
    std::uint64_t bytes = 0;
  };
  struct Taken {
    ShardIndex shard;
    Place place;
  };

  // Room that was promised to one load. Slabs are made (and populated) by Next, one at a time, so
  // that a large load need not wait for all of its pages. Destroying it returns what was not taken.
  // Thread-compatible. REQUIRES: the arena outlives it.
  class Claim {
   public:
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&&) = delete;
    ~Claim();

    // The next places, all of one slab unless they are reused ones, in the order they were wanted;
    // empty when all were given. ResourceExhausted: the kernel has no pages after all; what was
    // taken before stays taken.
    absl::StatusOr<std::vector<Taken>> Next();

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
  };

  explicit Arena(Options options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Promises a place for each wanted shard, all or none. ResourceExhausted names the table, the
  // bytes wanted and free, and the setting. AlreadyExists: a shard has a place.
  absl::StatusOr<Claim> Reserve(const TableUid& table, const std::string& table_name,
                                std::span<const Wanted> wanted);

  // Where a shard lies; nothing when it has no place.
  std::optional<Place> Find(const ShardKey& shard) const;

  // Unknown shards are ignored. REQUIRES: nobody writes the place or reads it on our behalf.
  void Free(const ShardKey& shard);

  // Rows must be sealed: a device keeps what an earlier owner left, and other hosts may write to
  // it.
  bool demands_seals() const { return options_.device != nullptr; }

  // allocated_bytes counts slabs, promised ones included, and those that readers still map.
  TierCapacity capacity();
  // What every slab was granted, for people.
  std::vector<std::string> Describe() const;

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
};

}  // namespace engram::poolserver
