#include "poolserver/nvme/row_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::poolserver::nvme {
namespace {

constexpr std::uint8_t kProbation = 0, kMain = 1;
constexpr std::uint8_t kMostRowUses = 3;
// One insertion gives so many rows another round at most: a bound of its time.
constexpr std::uint32_t kMostRowLooks = 64;
constexpr std::uint64_t kLeastCacheBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastPartitionBytes = std::uint64_t{4} << 20;

std::uint64_t RoundDown(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }

}  // namespace

absl::StatusOr<std::unique_ptr<RowCache>> RowCache::Open(const Options& options) {
  if (options.bytes < kLeastCacheBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a row cache of ", options.bytes,
                                                   " bytes is too small: give it at least ",
                                                   kLeastCacheBytes, " bytes, or 0 for none"));
  }
  const std::uint64_t count =
      std::clamp<std::uint64_t>(options.bytes / kLeastPartitionBytes, 1, kMostPartitions);
  const std::uint64_t bytes = RoundDown(options.bytes / count, 64);
  auto memory = fabric::HostBuffer::Create(bytes * count);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("row cache: ", memory.status().message()));
  }
  std::unique_ptr<RowCache> cache(new RowCache(*std::move(memory)));
  const Partition::Sizes sizes = Partition::Sizes::For(options, bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    cache->partitions_.push_back(
        std::make_unique<Partition>(sizes, cache->memory_.bytes().data() + i * bytes));
  }
  return cache;
}

RowCache::~RowCache() = default;

void RowCache::Prefetch(Key key) const {
  const std::uint64_t hash = HashOf(key);
  PartitionOf(hash).Prefetch(hash);
}

void RowCache::Fill(Key key, std::span<const std::byte> row) {
  const std::uint64_t hash = HashOf(key);
  Partition& partition = PartitionOf(hash);
  MutexLock lock(&partition.mutex);
  partition.Fill(key, hash, row);
}

std::uint64_t RowCache::rows() const {
  std::uint64_t rows = 0;
  for (const auto& partition : partitions_) rows += partition->cells() / 5 * 4;
  return rows;
}

RowCache::Counters RowCache::counters() const {
  Counters sum;
  for (const auto& partition : partitions_) {
    MutexLock lock(&partition->mutex);
    const Counters some = partition->counters();
    sum.hits += some.hits;
    sum.misses += some.misses;
    sum.evictions += some.evictions;
  }
  return sum;
}

// ---- one partition ----

RowCache::Partition::Sizes RowCache::Partition::Sizes::For(const Options& options,
                                                           std::uint64_t bytes) {
  const std::uint64_t entry = (sizeof(Entry) + options.row_bytes + kUnit - 1) / kUnit * kUnit;
  // A quarter more cells than rows, as many hashes of rows that were put out.
  const std::uint64_t rows = bytes * 4 / (entry * 4 + 5 * sizeof(Cell) + 4 * sizeof(std::uint32_t));
  Sizes sizes;
  sizes.cells = static_cast<std::uint32_t>(RoundDown(rows * 5 / 4, 8));
  sizes.ghosts = static_cast<std::uint32_t>(RoundDown(rows, Ghosts::kLine));
  const std::uint64_t left =
      bytes - sizes.cells * sizeof(Cell) - sizes.ghosts * sizeof(std::uint32_t);
  sizes.probation = RoundDown(
      static_cast<std::uint64_t>(static_cast<double>(left) * options.probation_share), 64);
  sizes.main = RoundDown(left - sizes.probation, 64);
  return sizes;
}

RowCache::Partition::Partition(const Sizes& sizes, std::byte* memory)
    : cell_count_(sizes.cells),
      cells_(reinterpret_cast<Cell*>(memory)),
      ghosts_({reinterpret_cast<std::uint32_t*>(cells_ + sizes.cells), sizes.ghosts}),
      rows_(memory + sizes.cells * sizeof(Cell) + sizes.ghosts * sizeof(std::uint32_t)) {
  queues_[kProbation].units = static_cast<std::uint32_t>(sizes.probation / kUnit);
  queues_[kMain].begin = queues_[kProbation].units;
  queues_[kMain].units = static_cast<std::uint32_t>(sizes.main / kUnit);
}

RowCache::Partition::Cell* RowCache::Partition::CellOf(Key key, std::uint64_t hash) const {
  const auto tag = static_cast<std::uint32_t>(hash);
  std::uint32_t at = HomeOf(hash);
  while (cells_[at].place_and_one != 0) {
    if (cells_[at].tag == tag && At(cells_[at].place_and_one - 1)->key == key) return &cells_[at];
    if (++at == cell_count_) at = 0;
  }
  return nullptr;
}

const std::byte* RowCache::Partition::Find(Key key, std::uint64_t hash) {
  const Cell* const cell = CellOf(key, hash);
  if (cell == nullptr) {
    ++counters_.misses;
    return nullptr;
  }
  ++counters_.hits;
  Entry* const entry = At(cell->place_and_one - 1);
  entry->uses = std::min<std::uint8_t>(entry->uses + 1, kMostRowUses);
  return reinterpret_cast<const std::byte*>(entry + 1);
}

void RowCache::Partition::Fill(Key key, std::uint64_t hash, std::span<const std::byte> row) {
  if (CellOf(key, hash) != nullptr) return;
  looks_ = 0;
  const bool back = ghosts_.Take(hash);
  Push(back ? kMain : kProbation, key, row, 0);
}

// Writes a row at the head of a queue; what stands in its way is put out. A row that the queue is
// too small for is not kept.
void RowCache::Partition::Push(std::uint8_t queue, Key key, std::span<const std::byte> row,
                               std::uint8_t uses) {
  const auto units = static_cast<std::uint32_t>((sizeof(Entry) + row.size() + kUnit - 1) / kUnit);
  // Small rows fill the index first.
  while (indexed_ + 1 >= cell_count_ - cell_count_ / 8) {
    if (queues_[kProbation].used == 0 && queues_[kMain].used == 0) return;
    PutOut(queues_[kProbation].used > 0 ? kProbation : kMain);
  }
  if (!MakeRoom(queue, units)) return;
  Queue& to = queues_[queue];
  const std::uint32_t place = to.begin + to.head;
  Entry* const entry = At(place);
  *entry = {key, static_cast<std::uint16_t>(row.size()), uses, queue,
            static_cast<std::uint32_t>(units * kUnit)};
  std::memcpy(entry + 1, row.data(), row.size());
  to.head = to.head + units == to.units ? 0 : to.head + units;
  to.used += units;
  Index(key, place);
}

// Puts rows out until `units` in one piece are free at the head.
bool RowCache::Partition::MakeRoom(std::uint8_t queue, std::uint32_t units) {
  Queue& of = queues_[queue];
  if (units > of.units / 2) return false;
  while (true) {
    if (of.used == 0) of.head = of.tail = 0;
    const bool wrapped = of.used > 0 && of.head <= of.tail;
    const std::uint32_t end = wrapped ? of.tail : of.units;
    if (end - of.head >= units) return true;
    if (!wrapped && of.tail >= units) {  // the rest before the end is a gap
      *At(of.begin + of.head) = {0, 0, 0, queue,
                                 static_cast<std::uint32_t>((of.units - of.head) * kUnit)};
      of.used += of.units - of.head;
      of.head = 0;
      continue;
    }
    PutOut(queue);
  }
}

// Takes the oldest row of a queue. If it was used it goes on in the main queue.
void RowCache::Partition::PutOut(std::uint8_t queue) {
  Queue& from = queues_[queue];
  Entry* const entry = At(from.begin + from.tail);
  const auto units = static_cast<std::uint32_t>(entry->bytes / kUnit);
  const Entry old = *entry;
  from.tail = from.tail + units == from.units ? 0 : from.tail + units;
  from.used -= units;
  if (old.row_bytes == 0) return;
  Unindex(old.key);
  if (old.uses == 0 || ++looks_ > kMostRowLooks) {
    if (queue == kProbation) ghosts_.Add(HashOf(old.key));
    ++counters_.evictions;
    return;
  }
  // Its place may be what the main queue's head needs next: the row goes by way of a copy, which
  // rows that it displaces in turn do not share.
  const auto* const bytes = reinterpret_cast<const std::byte*>(entry + 1);
  std::vector<std::byte> row = std::exchange(moving_, {});
  row.assign(bytes, bytes + old.row_bytes);
  const auto uses = static_cast<std::uint8_t>(queue == kMain ? old.uses - 1 : 0);
  Push(kMain, old.key, row, uses);
  moving_ = std::move(row);
}

void RowCache::Partition::Index(Key key, std::uint32_t place) {
  const std::uint64_t hash = HashOf(key);
  std::uint32_t at = HomeOf(hash);
  while (cells_[at].place_and_one != 0) {
    if (++at == cell_count_) at = 0;
  }
  cells_[at] = {static_cast<std::uint32_t>(hash), place + 1};
  ++indexed_;
}

// Empties the cell and closes the gap, so that no search ends early.
void RowCache::Partition::Unindex(Key key) {
  Cell* const cell = CellOf(key, HashOf(key));
  ENGRAM_CHECK(cell != nullptr);
  auto gap = static_cast<std::uint32_t>(cell - cells_);
  const auto distance = [this](std::uint32_t from, std::uint32_t to) {
    return to >= from ? to - from : to + cell_count_ - from;
  };
  for (std::uint32_t at = gap + 1 == cell_count_ ? 0 : gap + 1; cells_[at].place_and_one != 0;
       at = at + 1 == cell_count_ ? 0 : at + 1) {
    const std::uint32_t home = HomeOf(HashOf(At(cells_[at].place_and_one - 1)->key));
    if (distance(home, at) < distance(gap, at)) continue;
    cells_[gap] = cells_[at];
    gap = at;
  }
  cells_[gap] = {};
  --indexed_;
}

}  // namespace engram::poolserver::nvme
