// Where the replicas of one tier lie on this node: dram, cxl or nvme behind one interface.
//
// A replica's bytes are its rows as they are stored, `stride` apart, seals included; offsets here
// and in grants count those bytes, wherever the store really has them. Its life is
//
//   Reserve -> Claim::Next -> fill -> Commit -> read, scrubbed, exposed -> Free
//
// Filling: a place in memory is filled through Place::data(). Any other place takes whole blocks
// (kBlockRows rows from the shard's start, the last one may be short) through Write, in any order.
// Nothing that was not committed is ever read, exposed or found again.
//
// Exposing: a place in memory is exposed on every fabric that reaches it. Any other place is
// exposed on `stream` alone, through the rows that Rows opens; a one-sided reader goes there by
// itself, for it sees no other path.
//
// A store does not know sessions, leases or replica states: who frees a place has made sure that
// nobody reads it any more. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/node_protocol.h"
#include "engram/tier.h"
#include "fabric/memory.h"
#include "fabric/stream/row_source.h"

namespace engram::poolserver {

// The bytes of one replica. Valid until TierStore::Free.
struct Place {
  const fabric::Slab* slab = nullptr;  // null: not in memory
  std::uint64_t offset = 0;            // in the slab
  std::uint64_t length = 0;            // as asked for

  std::byte* data() const { return slab == nullptr ? nullptr : slab->data() + offset; }
};

// The table whose shards are stored.
struct StoredRows {
  TableUid table;
  std::string name;          // for people
  std::uint32_t stride = 0;  // bytes of a row with its seal
  std::string spec_digest = {};
};

class TierStore {
 public:
  struct Wanted {
    ShardIndex shard;
    std::uint64_t bytes = 0;  // whole rows
  };
  struct Taken {
    ShardIndex shard;
    Place place;
    // The place holds the shard already, from an earlier start of this node: committed, every byte
    // compared with its checksum. One CRC32C a block; not to be filled.
    std::optional<std::vector<std::uint32_t>> whole = std::nullopt;
  };

  // Room that was promised to one load, handed out in parts, so that a large load need not wait for
  // all of it. Destroying it returns what was not taken. Thread-compatible. REQUIRES: the store
  // outlives it.
  class Claim {
   public:
    virtual ~Claim() = default;
    // The next places, in the order they were wanted; empty when all were given. ResourceExhausted:
    // there is no room after all; what was taken before stays taken.
    virtual absl::StatusOr<std::vector<Taken>> Next() = 0;
    // What the places handed out so far lie on, for people.
    virtual std::string Granted() const = 0;
  };

  virtual ~TierStore() = default;
  virtual Tier tier() const = 0;

  // Promises a place for each wanted shard, all or none. ResourceExhausted names the table, the
  // bytes wanted and free, and the setting. AlreadyExists: a shard has a place.
  virtual absl::StatusOr<std::unique_ptr<Claim>> Reserve(const StoredRows& rows,
                                                         std::span<const Wanted> wanted) = 0;
  // Where a shard lies; nothing when it has no place.
  virtual std::optional<Place> Find(const ShardKey& shard) const = 0;

  // Puts blocks into a place that is not in memory. REQUIRES: it was handed out and not committed;
  // `offset` is that of a block, `bytes` whole blocks up to the place's end. Different parts of a
  // place may be written at the same time.
  virtual absl::Status Write(const ShardKey& shard, std::uint64_t offset,
                             std::span<const std::byte> bytes) = 0;
  // All of the place was filled: from now on it may be read. `block_crcs`: the CRC32C of each of
  // its blocks, seals left out.
  virtual absl::Status Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs) = 0;

  // `length` bytes at `offset` of a committed place, both whole blocks: where they lie, or read
  // into `scratch`, which is made as large as needed. DataLoss: the device does not give them.
  virtual absl::StatusOr<const std::byte*> Read(const ShardKey& shard, std::uint64_t offset,
                                                std::uint64_t length,
                                                std::vector<std::byte>* scratch) = 0;
  // Opens the rows of a committed place for the gather. REQUIRES: the result is destroyed before
  // Free.
  virtual absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> Rows(
      const ShardKey& shard) = 0;

  // Unknown shards are ignored. REQUIRES: nobody writes the place or reads it on our behalf.
  virtual void Free(const ShardKey& shard) = 0;

  // Rows must be sealed: what is read may be what an earlier owner left, or another host wrote.
  virtual bool demands_seals() const = 0;
  // allocated_bytes counts what is promised, too, and what readers still hold of what was freed.
  virtual TierCapacity capacity() = 0;
  // What the store lies on, for people: a line when the node starts.
  virtual std::string Describe() const = 0;
};

}  // namespace engram::poolserver
