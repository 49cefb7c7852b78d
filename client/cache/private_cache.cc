#include "client/cache/private_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "fabric/copy.h"

namespace engram::client {
namespace {

constexpr std::uint32_t kMostEntryUses = 3;
constexpr std::uint32_t kFewestSlots = 64;
constexpr std::uint32_t kMostUnitRows = 1024;
// One insertion looks at so many units at most: a bound of its time. Were all of them used lately,
// the last one goes all the same.
constexpr int kMostEntryLooks = 64;
constexpr std::size_t kEagerEntryBytes =
    512;  // of a unit's rows, asked for before it is known to match

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint32_t TagOf(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }

}  // namespace

PrivateCache::Sizes PrivateCache::Sizes::For(const Options& options, std::uint32_t slots) {
  Sizes sizes;
  sizes.slots = slots;
  sizes.cells = static_cast<std::uint32_t>(std::bit_ceil(std::uint64_t{slots} * 3 / 2));
  sizes.ghosts = static_cast<std::uint32_t>(RoundUp(std::uint64_t{slots} * 2, Ghosts::kLine));
  sizes.header_bytes = RoundUp(sizeof(Header) + options.unit_rows * sizeof(RowId), 16);
  sizes.slot_bytes = std::size_t{options.unit_rows} * options.row_bytes;
  sizes.total = std::uint64_t{sizes.cells} * sizeof(Cell) + sizes.ghosts * sizeof(std::uint32_t) +
                slots * sizes.header_bytes + slots * sizes.slot_bytes + 128;
  return sizes;
}

absl::StatusOr<std::unique_ptr<PrivateCache>> PrivateCache::Open(const Options& options) {
  if (options.row_bytes == 0 || options.unit_rows == 0 || options.unit_rows > kMostUnitRows)
    return absl::InvalidArgumentError(
        absl::StrCat("a row cache holds units of 1 to ", kMostUnitRows, " rows of 1 byte or more; ",
                     options.unit_rows, " rows of ", options.row_bytes, " bytes were asked for"));
  if (!(options.pinned_share >= 0 && options.pinned_share <= 0.5))
    return absl::InvalidArgumentError(
        absl::StrCat("pinned_share is ", options.pinned_share, "; allowed are 0 to 0.5"));
  const std::uint64_t least = Sizes::For(options, kFewestSlots).total;
  if (options.bytes < least)
    return absl::InvalidArgumentError(absl::StrCat("a row cache of ", options.bytes,
                                                   " bytes is too small: give it at least ", least,
                                                   " bytes, or 0 for none"));
  const std::uint64_t one = Sizes::For(options, 1).header_bytes + Sizes::For(options, 1).slot_bytes;
  std::uint64_t slots = std::min<std::uint64_t>(options.bytes / one, 1u << 30);
  while (Sizes::For(options, static_cast<std::uint32_t>(slots)).total > options.bytes)
    slots -= slots / 256 + 1;
  const Sizes sizes = Sizes::For(options, static_cast<std::uint32_t>(slots));
  auto memory = fabric::HostBuffer::Create(sizes.total);
  if (!memory.ok())
    return absl::Status(memory.status().code(),
                        absl::StrCat("row cache: ", memory.status().message()));
  return std::unique_ptr<PrivateCache>(new PrivateCache(options, sizes, *std::move(memory)));
}

PrivateCache::PrivateCache(const Options& options, const Sizes& sizes, fabric::HostBuffer memory)
    : RowCache(options.unit_rows),
      row_bytes_(options.row_bytes),
      sizes_(sizes),
      memory_(std::move(memory)),
      cell_mask_(sizes.cells - 1),
      most_probation_(std::max(sizes.slots / 5, 1u)),
      most_bulk_(std::max(sizes.slots / 10, 1u)),
      most_pinned_(static_cast<std::uint32_t>(sizes.slots * options.pinned_share)),
      cells_(reinterpret_cast<Cell*>(memory_.bytes().data())),
      headers_(memory_.bytes().data() + std::size_t{sizes.cells} * sizeof(Cell) +
               sizes.ghosts * sizeof(std::uint32_t)),
      rows_(headers_ + RoundUp(sizes.slots * sizes.header_bytes, 64)),
      ghosts_({reinterpret_cast<std::uint32_t*>(cells_ + sizes.cells), sizes.ghosts}) {}

// ---- finding ----

bool PrivateCache::Matches(std::uint32_t slot, std::span<const RowId> ids) const {
  return HeaderOf(slot).rows == ids.size() &&
         std::memcmp(IdsOf(slot), ids.data(), ids.size_bytes()) == 0;
}

// From `cell` on, the slot that holds the ids, or kNone.
std::uint32_t PrivateCache::SlotAt(std::uint32_t cell, std::uint32_t tag,
                                   std::span<const RowId> ids) const {
  for (; cells_[cell].slot_and_one != 0; cell = (cell + 1) & cell_mask_) {
    if (cells_[cell].tag == tag && Matches(cells_[cell].slot_and_one - 1, ids))
      return cells_[cell].slot_and_one - 1;
  }
  return kNone;
}

std::uint32_t PrivateCache::Lookup(std::uint64_t hash, std::span<const RowId> ids) const {
  const std::uint32_t tag = TagOf(hash);
  return SlotAt(tag & cell_mask_, tag, ids);
}

// In rounds, so that the processor waits for the memory of all of them together.
void PrivateCache::FindBatch(std::span<CacheProbe> probes, std::uint32_t* slots, CacheUse use) {
  std::array<std::uint32_t, kBatch> cells;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    cells[i] = TagOf(probes[i].hash) & cell_mask_;
    fabric::PrefetchBytes(reinterpret_cast<const std::byte*>(&cells_[cells[i]]), sizeof(Cell));
  }
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const std::uint32_t tag = TagOf(probes[i].hash);
    std::uint32_t cell = cells[i];
    while (cells_[cell].slot_and_one != 0 && cells_[cell].tag != tag)
      cell = (cell + 1) & cell_mask_;
    cells[i] = cell;
    if (cells_[cell].slot_and_one == 0) continue;
    const std::uint32_t slot = cells_[cell].slot_and_one - 1;
    fabric::PrefetchBytes(headers_ + slot * sizes_.header_bytes, sizes_.header_bytes);
    if (probes[i].out != nullptr)
      fabric::PrefetchBytes(RowsOf(slot), std::min(sizes_.slot_bytes, kEagerEntryBytes));
  }
  for (std::size_t i = 0; i < probes.size(); ++i) {
    slots[i] = SlotAt(cells[i], TagOf(probes[i].hash), probes[i].ids);
    probes[i].hit = slots[i] != kNone;
    if (!probes[i].hit) continue;
    Header& header = HeaderOf(slots[i]);
    if (header.hits != kMostHits) ++header.hits;
    if (use == CacheUse::kStep && header.uses < kMostEntryUses) ++header.uses;
  }
}

void PrivateCache::Find(std::span<CacheProbe> probes, CacheUse use) {
  std::array<std::uint32_t, kBatch> slots;
  for (std::size_t at = 0; at < probes.size(); at += kBatch)
    FindBatch(probes.subspan(at, std::min(kBatch, probes.size() - at)), slots.data(), use);
}

void PrivateCache::Read(std::span<CacheProbe> probes, CacheUse use) {
  std::array<std::uint32_t, kBatch> slots;
  for (std::size_t at = 0; at < probes.size(); at += kBatch) {
    const auto batch = probes.subspan(at, std::min(kBatch, probes.size() - at));
    FindBatch(batch, slots.data(), use);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!batch[i].hit) continue;
      const std::byte* from = RowsOf(slots[i]);
      for (std::size_t row = 0; row < batch[i].ids.size(); ++row)
        std::memcpy(batch[i].out[row], from + row * row_bytes_, row_bytes_);
    }
  }
}

bool PrivateCache::Has(std::span<const RowId> ids) const {
  return Lookup(HashOf(ids), ids) != kNone;
}

// ---- keeping ----

void PrivateCache::Push(Queue& queue, std::uint32_t slot) {
  HeaderOf(slot).next = kNone;
  (queue.size++ == 0 ? queue.head : HeaderOf(queue.tail).next) = slot;
  queue.tail = slot;
}

std::uint32_t PrivateCache::Pop(Queue& queue) {
  const std::uint32_t slot = queue.head;
  queue.head = HeaderOf(slot).next;
  --queue.size;
  return slot;
}

// Where the next unit is put out.
PrivateCache::Queue& PrivateCache::Victim(CacheUse use) {
  if (bulk_.size > most_bulk_ || (use == CacheUse::kBulk && bulk_.size == most_bulk_)) return bulk_;
  if (probation_.size > most_probation_ || (main_.size == 0 && probation_.size > 0))
    return probation_;
  return main_.size > 0 ? main_ : bulk_;
}

// The oldest unit of the queue, unless it was used: then it goes on in the main queue, and kNone is
// returned.
std::uint32_t PrivateCache::EvictFrom(Queue& queue) {
  const std::uint32_t slot = Pop(queue);
  Header& header = HeaderOf(slot);
  if (header.pinned) return kNone;
  if (header.uses == 0) {
    if (&queue != &bulk_) ghosts_.Add(HashOf({IdsOf(slot), header.rows}));
    return slot;
  }
  header.uses = &queue == &main_ ? header.uses - 1 : 0;
  Push(main_, slot);
  return kNone;
}

// A slot that holds nothing any more.
std::uint32_t PrivateCache::TakeSlot(CacheUse use) {
  if (used_ < sizes_.slots) return used_++;
  std::uint32_t slot = kNone;
  for (int looks = 0; slot == kNone; ++looks) {
    Queue& queue = Victim(use);
    if (looks >= kMostEntryLooks) HeaderOf(queue.head).uses = 0;
    slot = EvictFrom(queue);
  }
  Unindex(slot);
  bytes_ -= std::uint64_t{HeaderOf(slot).rows} * row_bytes_;
  ++evictions_;
  return slot;
}

// Empties the slot's cell and closes the gap, so that no search ends early.
void PrivateCache::Unindex(std::uint32_t slot) {
  std::uint32_t gap = HeaderOf(slot).tag & cell_mask_;
  while (cells_[gap].slot_and_one != slot + 1) gap = (gap + 1) & cell_mask_;
  for (std::uint32_t at = (gap + 1) & cell_mask_; cells_[at].slot_and_one != 0;
       at = (at + 1) & cell_mask_) {
    const std::uint32_t home = cells_[at].tag & cell_mask_;
    if (((at - home) & cell_mask_) < ((at - gap) & cell_mask_)) continue;
    cells_[gap] = cells_[at];
    gap = at;
  }
  cells_[gap] = {};
}

void PrivateCache::Store(std::uint32_t slot, const CacheFill& unit) {
  ENGRAM_CHECK(unit.ids.size() <= unit_rows_);
  Header& header = HeaderOf(slot);
  header.tag = TagOf(unit.hash);
  header.hits = 0;
  header.uses = 0;
  header.pinned = false;
  header.rows = static_cast<std::uint16_t>(unit.ids.size());
  std::memcpy(static_cast<void*>(IdsOf(slot)), unit.ids.data(), unit.ids.size_bytes());
  std::byte* to = RowsOf(slot);
  for (std::size_t row = 0; row < unit.ids.size(); ++row)
    std::memcpy(to + row * row_bytes_, unit.rows[row], row_bytes_);
  std::uint32_t cell = header.tag & cell_mask_;
  while (cells_[cell].slot_and_one != 0) cell = (cell + 1) & cell_mask_;
  cells_[cell] = {header.tag, slot + 1};
  bytes_ += std::uint64_t{header.rows} * row_bytes_;
}

void PrivateCache::Fill(const CacheFill& unit, CacheUse use) {
  if (Lookup(unit.hash, unit.ids) != kNone) return;
  const bool back = use == CacheUse::kStep && ghosts_.Take(unit.hash);
  const std::uint32_t slot = TakeSlot(use);
  Store(slot, unit);
  Push(use == CacheUse::kBulk ? bulk_ : back ? main_ : probation_, slot);
}

// A unit that is in a queue leaves it when its turn comes.
bool PrivateCache::Pin(const CacheFill& unit) {
  std::uint32_t slot = Lookup(unit.hash, unit.ids);
  if (slot != kNone && HeaderOf(slot).pinned) return true;
  if (pinned_ == most_pinned_) return false;
  if (slot == kNone) {
    slot = TakeSlot(CacheUse::kStep);
    Store(slot, unit);
  }
  HeaderOf(slot).pinned = true;
  ++pinned_;
  return true;
}

std::vector<HotNgram> PrivateCache::Hottest(std::size_t most) const {
  std::vector<std::uint32_t> slots(used_);
  for (std::uint32_t i = 0; i < used_; ++i) slots[i] = i;
  const auto hotter = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t x = HeaderOf(a).hits, y = HeaderOf(b).hits;
    return x != y ? x > y : a < b;
  };
  most = std::min<std::size_t>(most, used_);
  std::partial_sort(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(most), slots.end(),
                    hotter);
  std::vector<HotNgram> out(most);
  for (std::size_t i = 0; i < most; ++i)
    out[i] = {HeaderOf(slots[i]).hits,
              {IdsOf(slots[i]), IdsOf(slots[i]) + HeaderOf(slots[i]).rows}};
  return out;
}

}  // namespace engram::client
