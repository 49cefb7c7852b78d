#include "client/cache/host_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric/copy.h"

namespace engram::client {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 42;
constexpr std::size_t kBatch = 16;  // probes whose memory is asked for together
constexpr std::size_t kEagerBytes = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<HostCache>> HostCache::Open(const Options& options) {
  if (!options.sealed)
    return absl::FailedPreconditionError(
        "a host cache needs a table with seals: load it with --seal crc32c, or use a private "
        "cache");
  if (options.row_bytes == 0 || options.unit_rows == 0 ||
      options.unit_rows > HostSlot::kMostUnitRows)
    return absl::InvalidArgumentError(absl::StrCat(
        "a host cache holds units of 1 to ", HostSlot::kMostUnitRows, " rows of 1 byte or more; ",
        options.unit_rows, " rows of ", options.row_bytes, " bytes were asked for"));
  const HostSlotShape shape{options.unit_rows, options.row_bytes};
  const std::uint64_t set_bytes = sizeof(HostSet) + HostSet::kWays * shape.bytes();
  if (options.bytes < 4096 + 4 * set_bytes || options.bytes > kMostBytes)
    return absl::InvalidArgumentError(absl::StrCat("a host cache of ", options.bytes,
                                                   " bytes: give it ", 4096 + 4 * set_bytes, " to ",
                                                   kMostBytes, " bytes, or 0 for none"));
  HostSegmentOptions segment;
  segment.folder = options.folder;
  segment.tenant = options.tenant;
  segment.table = options.table;
  segment.row_bytes = options.row_bytes;
  segment.unit_rows = options.unit_rows;
  segment.sets = (options.bytes - 4096) / set_bytes;
  segment.bytes = segment.sets * set_bytes;
  auto opened = HostSegment::Open(segment);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<HostCache>(new HostCache(options, segment.sets, *std::move(opened)));
}

HostCache::HostCache(const Options& options, std::uint64_t sets,
                     std::unique_ptr<HostSegment> segment)
    : RowCache(options.unit_rows),
      shape_{options.unit_rows, options.row_bytes},
      sealer_(options.table, options.row_bytes),
      clock_(*options.clock),
      sets_(sets),
      segment_(std::move(segment)),
      data_(segment_->data()) {
  bytes_ = places() * shape_.unit_rows * shape_.row_bytes;
}

std::byte* HostCache::Place(std::uint64_t set, std::uint32_t way) const {
  return data_ + sets_ * sizeof(HostSet) + (set * HostSet::kWays + way) * shape_.bytes();
}

HostSlot HostCache::SlotOf(std::uint64_t set, std::uint32_t way) const {
  return HostSlot(Place(set, way), shape_);
}

// ---- finding ----

std::uint32_t HostCache::WayOf(std::uint64_t hash, std::span<const RowId> ids) const {
  const std::uint64_t number = SetOf(hash);
  const HostSet& set = Set(number);
  const std::uint32_t tag = HostSet::TagOf(hash);
  for (std::uint32_t way = 0; way < HostSet::kWays; ++way) {
    if (set.tags[way].load(std::memory_order_acquire) == tag && SlotOf(number, way).Holds(ids))
      return way;
  }
  return HostSet::kNoWay;
}

bool HostCache::Has(std::span<const RowId> ids) const {
  return WayOf(HashOf(ids), ids) != HostSet::kNoWay;
}

// The unit's first bytes, if its tag is there.
void HostCache::Prefetch(std::uint64_t hash) const {
  const std::uint64_t number = SetOf(hash);
  const std::uint32_t tag = HostSet::TagOf(hash);
  for (std::uint32_t way = 0; way < HostSet::kWays; ++way) {
    if (Set(number).tags[way].load(std::memory_order_relaxed) == tag)
      fabric::PrefetchBytes(Place(number, way), std::min(shape_.bytes(), kEagerBytes));
  }
}

void HostCache::ReadOne(CacheProbe& probe, CacheUse use) {
  const std::uint64_t number = SetOf(probe.hash);
  HostSet& set = Set(number);
  std::uint32_t tag = HostSet::TagOf(probe.hash);
  probe.hit = probe.elsewhere = false;
  for (std::uint32_t way = 0; way < HostSet::kWays && !probe.hit; ++way) {
    if (set.tags[way].load(std::memory_order_acquire) != tag) continue;
    HostSlot slot = SlotOf(number, way);
    switch (slot.Read(probe.ids, probe.out, sealer_)) {
      case HostSlot::Found::kOther: break;
      case HostSlot::Found::kDamaged:
        // A writer that woke too late: the place is free for the next.
        set.tags[way].compare_exchange_strong(tag, 0, std::memory_order_relaxed);
        tag = HostSet::TagOf(probe.hash);
        break;
      case HostSlot::Found::kHit:
        probe.hit = true;
        slot.CountHit();
        if (use == CacheUse::kStep) set.Use(way);
        break;
    }
  }
}

void HostCache::Missed(CacheProbe& probe, const HostReadings::Reader& reader) {
  HostReadings& readings = Set(SetOf(probe.hash)).readings;
  const std::uint32_t tag = HostSet::TagOf(probe.hash);
  probe.elsewhere = !readings.Begin(tag, reader);
  if (probe.elsewhere || WayOf(probe.hash, probe.ids) == HostSet::kNoWay) return;
  // It came between the look and the claim.
  readings.End(tag, reader.owner);
  ReadOne(probe, reader.use);
}

void HostCache::Unread(std::uint64_t hash) {
  Set(SetOf(hash)).readings.End(HostSet::TagOf(hash), segment_->owner());
}

void HostCache::Read(std::span<CacheProbe> probes, CacheUse use) {
  for (std::size_t at = 0; at < probes.size(); at += kBatch) {
    const auto batch = probes.subspan(at, std::min(kBatch, probes.size() - at));
    for (const CacheProbe& probe : batch)
      fabric::PrefetchBytes(reinterpret_cast<const std::byte*>(&Set(SetOf(probe.hash))), 64);
    for (const CacheProbe& probe : batch) Prefetch(probe.hash);
    HostReadings::Reader reader{segment_->owner(), use, {}};
    for (CacheProbe& probe : batch) {
      ReadOne(probe, use);
      if (probe.hit) continue;
      if (reader.now == Instant()) reader.now = clock_.Now();
      Missed(probe, reader);
    }
  }
}

// ---- keeping ----

// Nothing waits: where another process writes, the unit is not kept.
bool HostCache::Keep(const CacheFill& unit, HostSet::Part part) {
  const std::uint64_t number = SetOf(unit.hash);
  HostSet& set = Set(number);
  bool evicted = false;
  const std::uint32_t way = set.MakeRoom(part, &evicted);
  if (way == HostSet::kNoWay) return false;
  evictions_ += evicted ? 1 : 0;
  HostSlot slot = SlotOf(number, way);
  const Instant now = clock_.Now();
  const std::uint64_t owner = HostSlot::OwnerWord(segment_->owner(), now);
  if (!slot.Claim(owner, now)) return false;
  const std::uint64_t sequence = slot.Begin();
  const auto rows = static_cast<std::uint32_t>(unit.ids.size());
  for (std::uint32_t i = 0; i < rows; ++i)
    slot.WriteRow(i, unit.ids[i], unit.rows[i], sealer_.Seal(unit.ids[i], unit.rows[i]));
  if (!slot.Publish(rows, sequence, owner)) return false;
  set.Place(way, HostSet::TagOf(unit.hash), part);
  return true;
}

void HostCache::Fill(const CacheFill& unit, CacheUse use) {
  if (unit.ids.size() <= unit_rows_ && WayOf(unit.hash, unit.ids) == HostSet::kNoWay) {
    HostSet& set = Set(SetOf(unit.hash));
    const bool back = use == CacheUse::kStep && set.TakeGhost(HostSet::TagOf(unit.hash));
    Keep(unit, use == CacheUse::kBulk ? HostSet::kBulk
               : back                 ? HostSet::kMain
                                      : HostSet::kProbation);
  }
  Unread(unit.hash);
}

bool HostCache::Pin(const CacheFill& unit) {
  if (unit.ids.size() > unit_rows_) return false;
  HostSet& set = Set(SetOf(unit.hash));
  const std::uint32_t way = WayOf(unit.hash, unit.ids);
  if (way != HostSet::kNoWay && set.PartOf(way) == HostSet::kPinned) return true;
  if (set.Count(HostSet::kPinned) >= HostSet::kMostPinned) return false;
  if (way == HostSet::kNoWay) return Keep(unit, HostSet::kPinned);
  set.Place(way, HostSet::TagOf(unit.hash), HostSet::kPinned);
  return true;
}

std::vector<HotNgram> HostCache::Hottest(std::size_t most) const {
  std::vector<HotNgram> all;
  std::vector<RowId> ids(unit_rows_);
  const auto hotter = [](const HotNgram& a, const HotNgram& b) {
    return a.hits != b.hits ? a.hits > b.hits : a.ids < b.ids;
  };
  const auto cut = [&](std::size_t count) {
    if (all.size() <= count) return;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                     hotter);
    all.resize(count);
  };
  for (std::uint64_t set = 0; set < sets_; ++set) {
    for (std::uint32_t way = 0; way < HostSet::kWays; ++way) {
      if (Set(set).tags[way].load(std::memory_order_relaxed) == 0) continue;
      const HostSlot slot = SlotOf(set, way);
      const std::size_t count = slot.Ids(ids);
      if (count > 0)
        all.push_back(
            {slot.hits(), {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)}});
    }
    if (all.size() > 2 * most + 1024) cut(most);
  }
  cut(most);
  std::sort(all.begin(), all.end(), hotter);
  return all;
}

}  // namespace engram::client
