#include "poolserver/arena.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/settings/units.h"

namespace engram::poolserver {
namespace {

// Replicas start on a small page: no cache line, and no registered page, is shared by two.
constexpr std::uint64_t kPlaceAlignment = 4096;

constexpr std::uint64_t kFirstSlabBytes = std::uint64_t{64} << 20;

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t PlaceBytes(std::uint64_t bytes) { return RoundUp(bytes, kPlaceAlignment); }

// A read-only descriptor of its own for the same memory; the fate of the pages can be asked of it.
int OpenWitness(int slab_fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", slab_fd);
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

// The kernel grants a write lease on a file only while nobody else holds it open or mapped, which
// is the one thing that an owner can ask about a memfd that it has handed out.
bool SomebodyElseHolds(int witness_fd) {
  return fcntl(witness_fd, F_SETLEASE, F_WRLCK) != 0 && errno == EAGAIN;
}

}  // namespace

Arena::Claim::Claim(Arena* arena, TableUid table, std::vector<Part> parts)
    : arena_(arena), table_(table), parts_(std::move(parts)) {}

Arena::Claim::~Claim() {
  for (; next_ < parts_.size(); ++next_) arena_->Abandon(parts_[next_]);
}

absl::StatusOr<std::vector<Arena::Taken>> Arena::Claim::Next() {
  if (next_ == parts_.size()) return std::vector<Taken>{};
  Part& part = parts_[next_];
  if (part.slab_bytes > 0) {
    if (absl::Status made = arena_->MakeSlab(table_, &part); !made.ok()) return made;
  }
  arena_->Record(table_, part.taken);
  if (granted_.empty()) granted_ = part.taken.front().place.slab->granted();
  ++next_;
  return std::move(part.taken);
}

Arena::Arena(Options options) : options_(std::move(options)) {}

Arena::~Arena() {
  MutexLock lock(&mutex_);
  for (const Lingering& slab : lingering_) close(slab.fd);
}

absl::StatusOr<std::unique_ptr<TierStore::Claim>> Arena::Reserve(const StoredRows& rows,
                                                                 std::span<const Wanted> wanted) {
  MutexLock lock(&mutex_);
  const TableUid& table = rows.table;
  for (const Wanted& one : wanted) {
    if (places_.count({table, one.shard}) == 0) continue;
    return absl::AlreadyExistsError(absl::StrCat("shard ", one.shard.value(), " of table ",
                                                 rows.name, " already has memory on this node"));
  }
  ForgetReleased();
  std::vector<bool> placed(wanted.size(), false);
  Claim::Part reused{TakeFreed(table, wanted, &placed), 0};
  std::vector<Claim::Part> parts = Cut(wanted, placed);
  std::uint64_t bytes = 0;
  for (const Claim::Part& part : parts) bytes += part.slab_bytes;
  const std::uint64_t free =
      options_.capacity_bytes - std::min(options_.capacity_bytes, allocated_bytes_);
  if (bytes > free) {
    for (const Taken& taken : reused.taken) FreePlace(taken.place);
    return absl::ResourceExhaustedError(absl::StrCat(
        "table ", rows.name, " does not fit: ", wanted.size(), " shards need ", RoundSize(bytes),
        " (", bytes, " bytes) of ", std::string(Name(options_.tier)), ", and ", RoundSize(free),
        " of this node's ", RoundSize(options_.capacity_bytes), " is free; raise ",
        options_.capacity_setting, ", add a pool node or delete a table that is not needed"));
  }
  allocated_bytes_ += bytes;
  if (!reused.taken.empty()) parts.insert(parts.begin(), std::move(reused));
  return std::unique_ptr<TierStore::Claim>(new Claim(this, table, std::move(parts)));
}

std::vector<Arena::Taken> Arena::TakeFreed(const TableUid& table, std::span<const Wanted> wanted,
                                           std::vector<bool>* placed) {
  std::map<std::uint64_t, std::vector<std::size_t>> by_size;  // the first wanted comes last
  for (std::size_t i = wanted.size(); i-- > 0;) by_size[PlaceBytes(wanted[i].bytes)].push_back(i);
  std::vector<std::pair<std::size_t, Place>> found;
  for (auto& [key, slab] : slabs_) {
    if (slab.table != table) continue;
    for (auto place = slab.free_places.begin(); place != slab.free_places.end();) {
      auto fitting = by_size.find(place->second);
      if (fitting == by_size.end() || fitting->second.empty()) {
        ++place;
        continue;
      }
      const std::size_t index = fitting->second.back();
      fitting->second.pop_back();
      (*placed)[index] = true;
      found.push_back({index, {slab.slab.get(), place->first, wanted[index].bytes}});
      ++slab.used_places;
      place = slab.free_places.erase(place);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Taken> taken;
  taken.reserve(found.size());
  for (const auto& [index, place] : found) taken.push_back({wanted[index].shard, place});
  return taken;
}

std::vector<Arena::Claim::Part> Arena::Cut(std::span<const Wanted> wanted,
                                           const std::vector<bool>& placed) const {
  const std::uint64_t page = static_cast<std::uint64_t>(options_.pages);
  const std::uint64_t usual = RoundUp(std::max<std::uint64_t>(options_.slab_bytes, 1), page);
  // The first is small: filling starts as soon as it is there.
  const std::uint64_t first = RoundUp(std::min(usual, kFirstSlabBytes), page);
  std::vector<Claim::Part> parts;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (placed[i]) continue;
    const std::uint64_t bytes = PlaceBytes(wanted[i].bytes);
    if (parts.empty() || used + bytes > (parts.size() == 1 ? first : usual)) {
      parts.emplace_back();
      used = 0;
    }
    parts.back().taken.push_back({wanted[i].shard, {nullptr, used, wanted[i].bytes}});
    used += bytes;
    parts.back().slab_bytes = RoundUp(used, page);
  }
  return parts;
}

// On the next device that has a piece as large.
absl::StatusOr<std::unique_ptr<fabric::Slab>> Arena::NewSlab(const TableUid& table,
                                                             std::uint64_t bytes) {
  if (options_.devices.empty()) {
    fabric::SlabOptions wanted;
    wanted.bytes = bytes;
    wanted.pages = options_.pages;
    wanted.allow_smaller_pages = options_.allow_smaller_pages;
    wanted.numa_node = options_.numa_node;
    wanted.name = absl::StrCat("engram-", table.Hex().substr(0, 8));
    return fabric::Slab::Create(wanted);
  }
  std::size_t first = 0;
  {
    MutexLock lock(&mutex_);
    first = next_device_++;
  }
  absl::Status refused;
  for (std::size_t i = 0; i < options_.devices.size(); ++i) {
    auto made =
        fabric::Slab::OnDevice(options_.devices[(first + i) % options_.devices.size()], bytes);
    if (made.ok()) return made;
    refused.Update(made.status());
  }
  return refused;
}

absl::Status Arena::MakeSlab(const TableUid& table, Claim::Part* part) {
  // Populating takes long: the lock is not held over it.
  absl::StatusOr<std::unique_ptr<fabric::Slab>> made = NewSlab(table, part->slab_bytes);
  if (!made.ok()) return made.status();
  for (Taken& taken : part->taken) taken.place.slab = made->get();

  MutexLock lock(&mutex_);
  allocated_bytes_ += (*made)->bytes();
  allocated_bytes_ -= part->slab_bytes;
  TableSlab& slab = slabs_[made->get()];
  slab.table = table;
  slab.used_places = part->taken.size();
  slab.slab = *std::move(made);
  return absl::OkStatus();
}

void Arena::Record(const TableUid& table, std::span<const Taken> taken) {
  MutexLock lock(&mutex_);
  for (const Taken& one : taken) places_[{table, one.shard}] = one.place;
}

void Arena::Abandon(const Claim::Part& part) {
  std::vector<std::unique_ptr<fabric::Slab>> whole;
  {
    MutexLock lock(&mutex_);
    allocated_bytes_ -= part.slab_bytes;
    if (part.slab_bytes == 0) {
      for (const Taken& taken : part.taken) whole.push_back(FreePlace(taken.place));
    }
  }
  for (auto& slab : whole) {
    if (slab != nullptr) Retire(std::move(slab));
  }
}

std::optional<Place> Arena::Find(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  auto found = places_.find(shard);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

void Arena::Free(const ShardKey& shard) {
  std::unique_ptr<fabric::Slab> whole;
  {
    MutexLock lock(&mutex_);
    auto found = places_.find(shard);
    if (found == places_.end()) return;
    whole = FreePlace(found->second);
    places_.erase(found);
  }
  if (whole != nullptr) Retire(std::move(whole));
}

std::unique_ptr<fabric::Slab> Arena::FreePlace(const Place& place) {
  auto found = slabs_.find(place.slab);
  TableSlab& slab = found->second;
  slab.free_places[place.offset] = PlaceBytes(place.length);
  if (--slab.used_places > 0) return nullptr;
  std::unique_ptr<fabric::Slab> whole = std::move(slab.slab);
  slabs_.erase(found);
  return whole;
}

void Arena::Retire(std::unique_ptr<fabric::Slab> slab) {
  // Whoever mapped a device has let go of it by now.
  const Lingering released{slab->fd() < 0 ? -1 : OpenWitness(slab->fd()), slab->bytes()};
  slab.reset();
  MutexLock lock(&mutex_);
  if (released.fd < 0) {
    // On a device, or out of descriptors: nothing can be asked, and the pages of an honest reader
    // are gone.
    allocated_bytes_ -= released.bytes;
    return;
  }
  lingering_.push_back(released);
  ForgetReleased();
}

void Arena::ForgetReleased() {
  std::erase_if(lingering_, [this](const Lingering& slab) {
    mutex_.AssertHeld();
    if (SomebodyElseHolds(slab.fd)) return false;
    close(slab.fd);
    allocated_bytes_ -= slab.bytes;
    return true;
  });
}

absl::Status Arena::Write(const ShardKey& shard, std::uint64_t offset,
                          std::span<const std::byte> bytes) {
  const std::optional<Place> place = Find(shard);
  ENGRAM_CHECK(place && offset + bytes.size() <= place->length);
  std::memcpy(place->data() + offset, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status Arena::Commit(const ShardKey&, std::span<const std::uint32_t>) {
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> Arena::Read(const ShardKey& shard, std::uint64_t offset,
                                             std::uint64_t length, std::vector<std::byte>*) {
  const std::optional<Place> place = Find(shard);
  if (!place) return absl::InternalError("a replica without memory");
  ENGRAM_CHECK(offset + length <= place->length);
  return place->data() + offset;
}

absl::StatusOr<std::unique_ptr<fabric::stream::RowSource>> Arena::Rows(const ShardKey& shard) {
  const std::optional<Place> place = Find(shard);
  if (!place) return absl::InternalError("a replica without memory");
  return std::make_unique<fabric::stream::MemoryRowSource>(place->data());
}

TierCapacity Arena::capacity() {
  MutexLock lock(&mutex_);
  ForgetReleased();
  TierCapacity out;
  out.tier = options_.tier;
  out.capacity_bytes = options_.capacity_bytes;
  out.allocated_bytes = allocated_bytes_;
  out.read_bytes_per_second = options_.read_bytes_per_second;
  for (const auto& device : options_.devices) {
    const std::string& path = device->description().path;
    if (access(path.c_str(), F_OK) != 0) out.trouble = absl::StrCat(path, " is gone");
  }
  return out;
}

std::string Arena::Describe() const {
  std::string out = absl::StrCat(FormatSize(options_.capacity_bytes), " of ",
                                 std::string(Name(options_.tier)), " on ");
  for (const auto& device : options_.devices) {
    absl::StrAppend(&out, device == options_.devices.front() ? "" : ", ",
                    device->description().path);
  }
  if (!options_.devices.empty()) return out;
  absl::StrAppend(&out, "pages of ", FormatSize(static_cast<std::uint64_t>(options_.pages)));
  if (options_.numa_node >= 0) absl::StrAppend(&out, ", node ", options_.numa_node);
  if (options_.pages != fabric::PageSize::k4KiB || !options_.allow_smaller_pages) return out;
  constexpr auto kHuge = static_cast<std::uint64_t>(fabric::PageSize::k2MiB);
  absl::StrAppend(&out, " (none of 2MiB is free; sysctl vm.nr_hugepages=",
                  RoundUp(options_.capacity_bytes, kHuge) / kHuge,
                  " before the start reserves them)");
  return out;
}

}  // namespace engram::poolserver
