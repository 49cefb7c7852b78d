#include "poolserver/nvme/nvme_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/settings/units.h"
#include "engram/table_spec.h"
#include "poolserver/nvme/read_probe.h"

namespace engram::poolserver::nvme {
namespace {

// Files of the directory, in the order of their names.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) return DiskError(-error.value(), "cannot list --nvme-dir", directory);
  std::sort(names.begin(), names.end());
  return names;
}

// Each shard is an open file.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool IsSane(const RowFileHeader& header) {
  return RowFileLayout::Check(header.stride).ok() && header.rows > 0 &&
         header.rows <= kMaxShardBytes;
}

}  // namespace

NvmeStore::NvmeStore(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<NvmeStore>> NvmeStore::Open(Options options) {
  std::unique_ptr<NvmeStore> store(new NvmeStore(std::move(options)));
  const Options& of = store->options_;
  RaiseFileLimit();
  if (absl::Status ok = store->Lock(); !ok.ok()) return ok;
  if (absl::Status ok = store->TryDirectIo(); !ok.ok()) return ok;
  if (absl::Status ok = store->Scan(); !ok.ok()) return ok;
  if (absl::Status ok = store->CheckRoom(); !ok.ok()) return ok;
  if (of.cache_bytes > 0) {
    RowCache::Options cache_options;
    cache_options.bytes = of.cache_bytes;
    auto cache = RowCache::Open(cache_options);
    if (!cache.ok()) {
      return absl::Status(cache.status().code(),
                          absl::StrCat("--nvme-cache: ", cache.status().message()));
    }
    store->cache_ = *std::move(cache);
  }
  Ring::Options ring_options;
  ring_options.depth = of.depth;
  ring_options.disk = of.disk;
  auto ring = Ring::Open(ring_options);
  if (!ring.ok()) return ring.status();
  store->ring_ = *std::move(ring);
  store->gathered_ = std::make_unique<GatheredRows>(store->ring_.get(), store->cache_.get());
  store->MeasureReads();
  return store;
}

// A device that is too full for it is used all the same.
void NvmeStore::MeasureReads() {
  read_rate_ = options_.read_bytes_per_second;
  if (read_rate_ != 0 || !options_.measure) return;
  const auto rate = MeasureRowReads(options_.disk, ring_.get(), options_.directory);
  if (rate.ok()) {
    read_rate_ = *rate;
  } else {
    options_.say(absl::StrCat(
        "--nvme-dir ", options_.directory,
        ": its read rate could not be measured, give --nvme-read-rate: ", rate.status().message()));
  }
}

NvmeStore::~NvmeStore() {
  Stop();
  {
    MutexLock lock(&mutex_);
    shards_.clear();
  }
  if (lock_fd_ >= 0) close(lock_fd_);
}

void NvmeStore::Stop() {
  if (ring_ != nullptr) ring_->Stop();
}

// ---- the directory ----

absl::Status NvmeStore::Lock() {
  const std::string path = options_.directory + "/LOCK";
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) {
    const absl::Status status = DiskError(-errno, "cannot lock --nvme-dir: cannot open", path);
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), "; make the directory, on the device that it is meant for"));
  }
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--nvme-dir ", options_.directory,
      " is in use by another process; give each node a directory of its own, or end the other"));
}

absl::Status NvmeStore::TryDirectIo() {
  Disk& disk = *options_.disk;
  const std::string path = options_.directory + "/PROBE";
  disk.Remove(path);
  const int fd = disk.Open(path, Disk::Mode::kCreate);
  std::int64_t result = fd;
  if (fd >= 0) {
    ReadBuffer buffer;
    std::byte* const bytes = buffer.Ensure(kDirectAlignment);
    if (bytes != nullptr) result = disk.Write(fd, {bytes, kDirectAlignment}, 0);
    disk.Close(fd);
    disk.Remove(path);
  }
  if (result >= 0) return absl::OkStatus();
  if (result != -EINVAL && result != -EOPNOTSUPP)
    return Named(DiskError(result, "cannot write to", path));
  return absl::FailedPreconditionError(
      absl::StrCat("the file system of --nvme-dir ", options_.directory,
                   " has no direct I/O in blocks of 4096 bytes; take one that has (ext4, xfs)"));
}

absl::Status NvmeStore::Scan() {
  auto names = NamesIn(options_.directory);
  if (!names.ok()) return names.status();
  std::size_t partial = 0;
  MutexLock lock(&mutex_);
  for (const std::string& name : *names) {
    const std::string path = options_.directory + "/" + name;
    ShardKey shard;
    if (ParseRowFileName(name, kPartialSuffix, &shard)) {
      if (int removed = options_.disk->Remove(path); removed < 0)
        return DiskError(removed, "cannot remove what a crash left half written:", path);
      ++partial;
    }
    if (!ParseRowFileName(name, "", &shard)) continue;
    auto header = RowFile::ReadHeader(options_.disk, path);
    if (header.ok() && header->version == kRowFileVersion && header->owner == options_.owner &&
        header->shard == shard && IsSane(*header)) {
      kept_[shard] = RowFileLayout(header->stride, header->rows).file_bytes();
      used_bytes_ += kept_[shard];
      continue;
    }
    options_.say(absl::StrCat(path, " is left alone: ",
                              !header.ok() ? std::string(header.status().message())
                              : header->version != kRowFileVersion
                                  ? absl::StrCat("format version ", header->version)
                                  : absl::StrCat("it belongs to node ", header->owner.name,
                                                 ", table ", header->shard.table.Hex())));
  }
  if (partial > 0)
    options_.say(
        absl::StrCat("removed ", partial, " half-written files from ", options_.directory));
  if (!kept_.empty())
    options_.say(absl::StrCat("kept ", kept_.size(), " shards of ", FormatSize(used_bytes_), " in ",
                              options_.directory, "; they are taken up when they are loaded"));
  return absl::OkStatus();
}

std::uint64_t NvmeStore::FreeBytes() const {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, options_.disk->FreeBytes(options_.directory)));
}

absl::Status NvmeStore::CheckRoom() const {
  const std::uint64_t free = FreeBytes();
  MutexLock lock(&mutex_);
  if (options_.capacity_bytes <= free + used_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("--nvme ", FormatSize(options_.capacity_bytes), " is more than --nvme-dir ",
                   options_.directory, " has: ", RoundSize(free), " are free and ",
                   RoundSize(used_bytes_), " hold shards of this node; lower it"));
}

std::string NvmeStore::PathOf(const ShardKey& shard) const {
  return absl::StrCat(options_.directory, "/", RowFileName(shard));
}

// What a full device is answered with.
absl::Status NvmeStore::Named(const absl::Status& status) const {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), "; ", RoundSize(FreeBytes()), " are free there, --nvme is ",
      FormatSize(options_.capacity_bytes), ": make room on the device or lower --nvme"));
}

// Remembers why nothing new should come here.
absl::Status NvmeStore::Noted(const absl::Status& status) {
  if (absl::IsNotFound(status)) return status;
  MutexLock lock(&mutex_);
  trouble_ = std::string(status.message());
  is_full_ = absl::IsResourceExhausted(status);
  return status;
}

// The device has what was promised for it, beside what is written already.
bool NvmeStore::HasRoom() const {
  std::uint64_t written = 0;
  for (const auto& [key, bytes] : kept_) written += bytes;
  for (const auto& [key, shard] : shards_) {
    if (shard.file != nullptr || shard.on_disk) written += shard.file_bytes;
  }
  return options_.capacity_bytes <= FreeBytes() + written;
}

// After a load that failed, and that nobody else ended: no load comes to a tier in trouble, so this
// is where a device that writes again is found.
void NvmeStore::LookAgain() {
  {
    MutexLock lock(&mutex_);
    if (trouble_.empty() || is_full_) return;
  }
  if (!TryDirectIo().ok()) return;
  MutexLock lock(&mutex_);
  trouble_.clear();
}

// ---- room ----

RowFileHeader NvmeStore::HeaderFor(const StoredRows& table, const Wanted& shard) const {
  RowFileHeader header;
  header.shard = {table.table, shard.shard};
  header.stride = table.stride;
  header.rows = shard.rows;
  header.block_bytes = RowFileLayout(table.stride, shard.rows).block_bytes();
  header.owner = options_.owner;
  header.spec_digest = table.spec_digest;
  return header;
}

// A stranger's file keeps its name.
absl::Status NvmeStore::CheckName(const RowFileHeader& header) const {
  auto file = RowFile::Open(options_.disk, PathOf(header.shard), header);
  return absl::IsNotFound(file.status()) ? absl::OkStatus() : file.status();
}

absl::Status NvmeStore::Reserve(const StoredRows& table, std::span<const Wanted> shards) {
  if (absl::Status ok = RowFileLayout::Check(table.stride); !ok.ok())
    return absl::Status(ok.code(), absl::StrCat("table ", table.name, ": ", ok.message()));
  if (table.spec_digest.size() != kSpecDigestBytes)
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name, " has no spec digest"));
  std::vector<RowFileHeader> wanted;
  for (const Wanted& shard : shards) {
    wanted.push_back(HeaderFor(table, shard));
    if (absl::Status ok = CheckName(wanted.back()); !ok.ok()) return ok;
  }
  MutexLock lock(&mutex_);
  std::uint64_t bytes = 0;
  for (RowFileHeader& header : wanted) {
    if (shards_.count(header.shard) != 0) {
      return absl::AlreadyExistsError(absl::StrCat("shard ", header.shard.shard.value(),
                                                   " of table ", table.name,
                                                   " is in the nvme tier already"));
    }
    if (kept_.count(header.shard) == 0)
      bytes += RowFileLayout(header.stride, header.rows).file_bytes();
    header.file_id = random_.Next();
  }
  if (absl::Status ok = MakeRoom(table, wanted, bytes); !ok.ok()) return ok;
  used_bytes_ += bytes;
  for (const RowFileHeader& header : wanted) {
    Shard shard;
    shard.header = header;
    shard.file_bytes = RowFileLayout(header.stride, header.rows).file_bytes();
    shard.on_disk = kept_.erase(header.shard) != 0;
    shards_[header.shard] = std::move(shard);
  }
  return absl::OkStatus();
}

// Files that nobody took up go when their room is needed.
absl::Status NvmeStore::MakeRoom(const StoredRows& table, std::span<const RowFileHeader> wanted,
                                 std::uint64_t bytes) {
  std::uint64_t spare = 0;
  std::set<ShardKey> keep;
  for (const RowFileHeader& header : wanted) keep.insert(header.shard);
  for (const auto& [shard, size] : kept_) spare += keep.count(shard) != 0 ? 0 : size;
  const std::uint64_t capacity = options_.capacity_bytes;
  if (bytes > capacity || used_bytes_ - spare > capacity - bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table ", table.name, " needs ", RoundSize(bytes), " in ", options_.directory,
                     ", and ", RoundSize(capacity - std::min(capacity, used_bytes_ - spare)),
                     " of ", FormatSize(capacity), " are free; raise --nvme or add a node"));
  }
  std::size_t removed = 0;
  for (auto at = kept_.begin(); at != kept_.end() && used_bytes_ > capacity - bytes;) {
    if (keep.count(at->first) != 0) {
      ++at;
      continue;
    }
    options_.disk->Remove(PathOf(at->first));
    used_bytes_ -= at->second;
    at = kept_.erase(at);
    ++removed;
  }
  if (removed > 0) {
    options_.say(absl::StrCat("removed ", removed, " shards that an earlier start left in ",
                              options_.directory, " to make room for table ", table.name));
  }
  return absl::OkStatus();
}

// ---- one shard ----

absl::StatusOr<std::vector<std::uint32_t>> NvmeStore::TakeUp(const ShardKey& shard) {
  RowFileHeader header;
  {
    MutexLock lock(&mutex_);
    const auto found = shards_.find(shard);
    if (found == shards_.end() || !found->second.on_disk)
      return absl::NotFoundError("no earlier start left this shard");
    header = found->second.header;
    found->second.on_disk = false;
  }
  auto file = RowFile::Open(options_.disk, PathOf(shard), header);
  auto checksums = file.ok() ? (*file)->Verify() : file.status();
  if (checksums.ok()) {
    Publish(shard, *std::move(file));
    return checksums;
  }
  options_.say(absl::StrCat("removed ", PathOf(shard),
                            ", which is written anew: ", checksums.status().message()));
  options_.disk->Remove(PathOf(shard));
  return absl::NotFoundError(checksums.status().message());
}

absl::StatusOr<std::shared_ptr<RowFileWriter>> NvmeStore::WriterOf(const ShardKey& shard) {
  RowFileHeader header;
  {
    MutexLock lock(&mutex_);
    const auto found = shards_.find(shard);
    if (found == shards_.end()) return absl::NotFoundError("no room was reserved for this shard");
    if (found->second.writer != nullptr) return found->second.writer;
    header = found->second.header;
    // Held while the file is made: its other writers wait for it.
    auto writer = RowFileWriter::Create(options_.disk, PathOf(shard), header);
    if (!writer.ok()) return Named(writer.status());
    found->second.writer = *std::move(writer);
    return found->second.writer;
  }
}

absl::Status NvmeStore::Write(const ShardKey& shard, std::uint64_t slot, std::uint64_t rows,
                              const std::byte* from) {
  auto writer = WriterOf(shard);
  if (!writer.ok()) return Noted(writer.status());
  if (absl::Status ok = (*writer)->Write(slot, rows, from); !ok.ok()) return Noted(Named(ok));
  written_bytes_.fetch_add(rows * (*writer)->stride(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status NvmeStore::Commit(const ShardKey& shard, std::span<const std::uint32_t> block_crcs) {
  auto writer = WriterOf(shard);
  if (!writer.ok()) return Noted(writer.status());
  if (absl::Status ok = (*writer)->Commit(block_crcs); !ok.ok()) return Noted(Named(ok));
  RowFileHeader header;
  {
    MutexLock lock(&mutex_);
    const auto found = shards_.find(shard);
    if (found == shards_.end()) return absl::NotFoundError("the shard was freed meanwhile");
    header = found->second.header;
    found->second.writer = nullptr;
    trouble_.clear();
    is_full_ = false;
  }
  auto file = RowFile::Open(options_.disk, PathOf(shard), header);
  if (!file.ok()) return Named(file.status());
  Publish(shard, *std::move(file));
  return absl::OkStatus();
}

void NvmeStore::Publish(const ShardKey& shard, std::shared_ptr<RowFile> file) {
  MutexLock lock(&mutex_);
  const auto found = shards_.find(shard);
  if (found != shards_.end()) found->second.file = std::move(file);
}

std::shared_ptr<RowFile> NvmeStore::FileOf(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  const auto found = shards_.find(shard);
  return found == shards_.end() ? nullptr : found->second.file;
}

absl::Status NvmeStore::Read(const ShardKey& shard, std::uint64_t slot, std::uint64_t rows,
                             std::byte* out) const {
  const std::shared_ptr<RowFile> file = FileOf(shard);
  if (file == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("shard ", shard.shard.value(), " is not in the nvme tier"));
  }
  return file->Read(slot, rows, out);
}

std::unique_ptr<fabric::stream::RowSource> NvmeStore::Source(const ShardKey& shard) {
  std::shared_ptr<RowFile> file = FileOf(shard);
  return file == nullptr ? nullptr : gathered_->SourceOf(std::move(file));
}

std::optional<std::uint64_t> NvmeStore::StoredBytes(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return std::nullopt;
  return found->second.header.rows * found->second.header.stride;
}

std::uint32_t NvmeStore::Stride(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  const auto found = shards_.find(shard);
  return found == shards_.end() ? 0 : found->second.header.stride;
}

void NvmeStore::Free(const ShardKey& shard) {
  Shard freed;
  {
    MutexLock lock(&mutex_);
    const auto found = shards_.find(shard);
    if (found == shards_.end()) return;
    freed = std::move(found->second);
    shards_.erase(found);
    // A new reservation of the shard must not meet the old name.
    freed.writer = nullptr;
    if (freed.on_disk) {
      kept_[shard] = freed.file_bytes;
      return;
    }
    if (freed.file != nullptr) options_.disk->Remove(PathOf(shard));
    used_bytes_ -= freed.file_bytes;
  }
  if (freed.file == nullptr) LookAgain();
}

// ---- what it says of itself ----

TierCapacity NvmeStore::capacity() const {
  MutexLock lock(&mutex_);
  TierCapacity capacity;
  capacity.tier = Tier::kNvme;
  capacity.capacity_bytes = options_.capacity_bytes;
  capacity.allocated_bytes = used_bytes_;
  capacity.read_bytes_per_second = read_rate_;
  if (!is_full_ || !HasRoom()) capacity.trouble = trouble_;
  return capacity;
}

NvmeStore::Counters NvmeStore::counters() const {
  Counters counters;
  counters.rows = gathered_->rows();
  counters.failed_rows = gathered_->failed_rows();
  counters.ring = ring_->counters();
  if (cache_ != nullptr) counters.cache = cache_->counters();
  counters.written_bytes = written_bytes_.load(std::memory_order_relaxed);
  return counters;
}

std::string NvmeStore::Describe() const {
  return absl::StrCat(FormatSize(options_.capacity_bytes), " in ", options_.directory,
                      ", io_uring with ", options_.depth, " reads in flight, ",
                      read_rate_ == 0 ? std::string() : RoundSize(read_rate_) + "/s of rows, ",
                      options_.cache_bytes == 0
                          ? std::string("no row cache")
                          : absl::StrCat("a row cache of ", FormatSize(options_.cache_bytes)));
}

}  // namespace engram::poolserver::nvme
