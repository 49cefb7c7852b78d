// The row cache that the processes of a host share: a row that one of them read, or reads now, is
// read by none of the others. Only for sealed tables: what comes out of memory that others write is
// believed by its seals alone (client/cache/host_slot.h). A process that is stopped or killed at
// any point harms nobody.
//
// Sets of 16 places (client/cache/host_set.h) in a segment in /dev/shm
// (client/cache/host_segment.h). After Open nothing here allocates, locks, logs or calls the
// system. Thread-confined: call from the owner thread only; others open the segment for themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cache/host_segment.h"
#include "client/cache/host_set.h"
#include "client/cache/host_slot.h"
#include "client/cache/row_cache.h"
#include "engram/clock.h"
#include "engram/sealed_row.h"

namespace engram::client {

class HostCache final : public RowCache {
 public:
  struct Options {
    std::uint64_t bytes = 0;  // of the whole segment; the same in every process
    std::string tenant;
    TableUid table;
    bool sealed = true;  // the table's rows have seals
    std::uint32_t row_bytes = 0;
    std::uint32_t unit_rows = 1;  // at most 64
    const Clock* clock = &SystemClock::Get();
    std::string folder = "/dev/shm";
  };
  // InvalidArgument: a number out of its limits; FailedPrecondition: a table without seals; else as
  // HostSegment::Open.
  static absl::StatusOr<std::unique_ptr<HostCache>> Open(const Options& options);

  void Read(std::span<CacheProbe> probes, CacheUse use) override;
  void Unread(std::uint64_t hash) override;
  void Fill(const CacheFill& unit, CacheUse use) override;
  bool Pin(const CacheFill& unit) override;
  bool Has(std::span<const RowId> ids) const override;
  // Of all processes.
  std::vector<HotNgram> Hottest(std::size_t most) const override;

  const HostSegment& segment() const { return *segment_; }
  std::uint64_t places() const { return sets_ * HostSet::kWays; }
  HostSlot SlotOf(std::uint64_t set, std::uint32_t way) const;
  std::uint64_t SetOf(std::uint64_t hash) const { return (hash >> 32) * sets_ >> 32; }

 private:
  HostCache(const Options& options, std::uint64_t sets, std::unique_ptr<HostSegment> segment);
  HostSet& Set(std::uint64_t set) const { return reinterpret_cast<HostSet*>(data_)[set]; }
  std::byte* Place(std::uint64_t set, std::uint32_t way) const;
  std::uint32_t WayOf(std::uint64_t hash, std::span<const RowId> ids) const;
  void Prefetch(std::uint64_t hash) const;
  void ReadOne(CacheProbe& probe, CacheUse use);
  void Missed(CacheProbe& probe, const HostReadings::Reader& reader);
  bool Keep(const CacheFill& unit, HostSet::Part part);

  const HostSlotShape shape_;
  const RowSealer sealer_;
  const Clock& clock_;
  const std::uint64_t sets_;
  const std::unique_ptr<HostSegment> segment_;
  std::byte* const data_;
};

}  // namespace engram::client
