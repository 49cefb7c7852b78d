// The row cache of one reader, in memory of its own on huge pages.
//
// Replacement is S3-FIFO with a third queue. Three first-in-first-out queues of slots: units that a
// step read for the first time are on probation (a fifth of the cache); those that were hit there,
// or came back soon after they were put out, are in the main queue, where a hit buys another round;
// units of bulk requests have a queue of their own (a tenth), are moved to the main queue by hits
// of steps only, and never push out what steps use. What was put out is remembered by hash (twice
// as many as there are slots). A pinned unit is in no queue.
//
// After Open nothing here allocates, locks, logs or calls the system. The whole of it (rows, row
// ids, queues, index, memory of what was put out) stays within `bytes`. Thread-confined: call from
// the owner thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cache/row_cache.h"
#include "engram/ghosts.h"
#include "fabric/memory.h"

namespace engram::client {

class PrivateCache final : public RowCache {
 public:
  struct Options {
    std::uint64_t bytes = 0;
    std::uint32_t row_bytes = 0;
    std::uint32_t unit_rows = 1;  // of the largest unit: every slot has room for so many
    double pinned_share = 0.25;   // of the slots, at most; up to 0.5
  };
  // InvalidArgument names the option and its limits; ResourceExhausted: not so much memory.
  static absl::StatusOr<std::unique_ptr<PrivateCache>> Open(const Options& options);

  void Read(std::span<CacheProbe> probes, CacheUse use) override;
  void Fill(const CacheFill& unit, CacheUse use) override;
  bool Pin(const CacheFill& unit) override;
  bool Has(std::span<const RowId> ids) const override;
  std::vector<HotNgram> Hottest(std::size_t most) const override;

  // Read without the rows: only says what would be hit, and counts as a use.
  void Find(std::span<CacheProbe> probes, CacheUse use);

  std::uint32_t slots() const { return sizes_.slots; }
  std::uint32_t pinned() const { return pinned_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kBatch = 16;  // probes whose memory is asked for together
  static constexpr std::uint32_t kMostHits = ~std::uint32_t{0};

  struct Header {  // of a slot; the row ids follow
    std::uint32_t next;
    std::uint32_t tag;
    std::uint32_t hits;
    std::uint8_t uses;  // since it was last looked at: up to 3
    bool pinned;
    std::uint16_t rows;
  };
  struct Cell {  // of the index; open addressing, found by tag
    std::uint32_t tag;
    std::uint32_t slot_and_one;  // 0: empty
  };
  struct Queue {
    std::uint32_t head = kNone, tail = kNone, size = 0;
  };
  struct Sizes {
    static Sizes For(const Options& options, std::uint32_t slots);
    std::uint32_t slots, cells, ghosts;
    std::size_t header_bytes;  // of one slot
    std::size_t slot_bytes;    // of one slot's rows
    std::uint64_t total;
  };

  PrivateCache(const Options& options, const Sizes& sizes, fabric::HostBuffer memory);
  Header& HeaderOf(std::uint32_t slot) const {
    return *reinterpret_cast<Header*>(headers_ + slot * sizes_.header_bytes);
  }
  RowId* IdsOf(std::uint32_t slot) const {
    return reinterpret_cast<RowId*>(headers_ + slot * sizes_.header_bytes + sizeof(Header));
  }
  std::byte* RowsOf(std::uint32_t slot) const { return rows_ + slot * sizes_.slot_bytes; }
  bool Matches(std::uint32_t slot, std::span<const RowId> ids) const;
  std::uint32_t SlotAt(std::uint32_t cell, std::uint32_t tag, std::span<const RowId> ids) const;
  std::uint32_t Lookup(std::uint64_t hash, std::span<const RowId> ids) const;
  void FindBatch(std::span<CacheProbe> probes, std::uint32_t* slots, CacheUse use);

  void Push(Queue& queue, std::uint32_t slot);
  std::uint32_t Pop(Queue& queue);
  std::uint32_t TakeSlot(CacheUse use);
  std::uint32_t EvictFrom(Queue& queue);
  Queue& Victim(CacheUse use);
  void Store(std::uint32_t slot, const CacheFill& unit);
  void Unindex(std::uint32_t slot);

  const std::uint32_t row_bytes_;
  const Sizes sizes_;
  const fabric::HostBuffer memory_;
  const std::uint32_t cell_mask_;
  const std::uint32_t most_probation_, most_bulk_, most_pinned_;
  Cell* cells_;
  std::byte* headers_;
  std::byte* rows_;
  Ghosts ghosts_;
  Queue probation_, main_, bulk_;
  std::uint32_t used_ = 0;    // slots that were ever filled
  std::uint32_t pinned_ = 0;  // of them
};

}  // namespace engram::client
