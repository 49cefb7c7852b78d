#include "poolserver/nvme/faulty_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "engram/check.h"

namespace engram::poolserver::nvme {

void FaultyDisk::FailReads(std::uint64_t offset, int result, int times) {
  MutexLock lock(&mutex_);
  faults_[offset] = {result, times};
}

void FaultyDisk::RefuseDirectIo() {
  MutexLock lock(&mutex_);
  refuses_direct_ = true;
}

void FaultyDisk::FillUpAfter(std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  room_ = bytes;
}

void FaultyDisk::CutPowerAfter(std::uint64_t steps) {
  MutexLock lock(&mutex_);
  last_step_ = steps_ + steps;
}

std::uint64_t FaultyDisk::steps() const {
  MutexLock lock(&mutex_);
  return steps_;
}

std::uint64_t FaultyDisk::most_in_flight() const {
  MutexLock lock(&mutex_);
  return most_in_flight_;
}

std::uint64_t FaultyDisk::Take(std::uint64_t wanted) {
  const std::uint64_t done = std::min(wanted, last_step_ - std::min(last_step_, steps_));
  steps_ += done;
  return done;
}

std::optional<int> FaultyDisk::FaultAt(std::uint64_t offset) {
  MutexLock lock(&mutex_);
  const auto found = faults_.find(offset);
  if (found == faults_.end() || found->second.times == 0) return std::nullopt;
  --found->second.times;
  return found->second.result;
}

void FaultyDisk::LoseWhatWasNotSynced(Random* random) {
  MutexLock lock(&mutex_);
  constexpr std::array<std::byte, kDirectAlignment> kZeros{};
  for (const auto& [path, offsets] : unsynced_) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    for (const std::uint64_t offset : offsets) {
      if (fd < 0 || random->Below(2) == 0) continue;
      ENGRAM_CHECK(pwrite(fd, kZeros.data(), kZeros.size(), static_cast<off_t>(offset)) ==
                   static_cast<ssize_t>(kZeros.size()));
    }
    if (fd >= 0) close(fd);
  }
  for (auto rename = renamed_.rbegin(); rename != renamed_.rend(); ++rename) {
    if (random->Below(2) == 0) disk_->Rename(rename->second, rename->first);
  }
}

int FaultyDisk::Open(const std::string& path, Mode mode) {
  MutexLock lock(&mutex_);
  if (refuses_direct_) return -EINVAL;
  if (mode == Mode::kCreate && steps_ >= last_step_) return -EIO;
  const int fd = disk_->Open(path, mode);
  if (fd >= 0) paths_[fd] = path;
  return fd;
}

void FaultyDisk::Close(int fd) {
  MutexLock lock(&mutex_);
  paths_.erase(fd);
  disk_->Close(fd);
}

std::int64_t FaultyDisk::Read(int fd, std::span<std::byte> to, std::uint64_t offset) {
  const std::optional<int> fault = FaultAt(offset);
  return fault ? *fault : disk_->Read(fd, to, offset);
}

std::int64_t FaultyDisk::Write(int fd, std::span<const std::byte> from, std::uint64_t offset) {
  MutexLock lock(&mutex_);
  if (from.size() > room_) return -ENOSPC;
  room_ -= from.size();
  const std::uint64_t blocks = from.size() / kDirectAlignment;
  const std::uint64_t done = Take(blocks);
  for (std::uint64_t i = 0; i < done; ++i)
    unsynced_[paths_[fd]].push_back(offset + i * kDirectAlignment);
  if (done == blocks) return disk_->Write(fd, from, offset);
  if (done > 0) disk_->Write(fd, from.first(done * kDirectAlignment), offset);
  return -EIO;
}

int FaultyDisk::Allocate(int fd, std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  if (steps_ >= last_step_) return -EIO;
  return room_ == ~std::uint64_t{0} ? disk_->Allocate(fd, bytes) : -EOPNOTSUPP;
}

int FaultyDisk::Sync(int fd) {
  MutexLock lock(&mutex_);
  if (Take(1) == 0) return -EIO;
  unsynced_.erase(paths_[fd]);
  return disk_->Sync(fd);
}

int FaultyDisk::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(&mutex_);
  if (Take(1) == 0) return -EIO;
  renamed_.emplace_back(from, to);
  const auto unsynced = unsynced_.extract(from);
  if (!unsynced.empty()) unsynced_[to] = unsynced.mapped();
  return disk_->Rename(from, to);
}

int FaultyDisk::Remove(const std::string& path) {
  MutexLock lock(&mutex_);
  return steps_ >= last_step_ ? -EIO : disk_->Remove(path);
}

int FaultyDisk::SyncDirectory(const std::string& path) {
  MutexLock lock(&mutex_);
  if (Take(1) == 0) return -EIO;
  renamed_.clear();
  return disk_->SyncDirectory(path);
}

std::int64_t FaultyDisk::FreeBytes(const std::string& directory) {
  MutexLock lock(&mutex_);
  const std::int64_t there = disk_->FreeBytes(directory);
  if (there < 0) return there;
  return static_cast<std::int64_t>(std::min(static_cast<std::uint64_t>(there), room_));
}

void FaultyDisk::ReadBegins() {
  MutexLock lock(&mutex_);
  most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
}

int FaultyDisk::ReadEnded(int fd, std::uint64_t offset, std::span<std::byte> data, int result) {
  {
    MutexLock lock(&mutex_);
    --in_flight_;
  }
  const std::optional<int> fault = FaultAt(offset);
  return fault ? *fault : disk_->ReadEnded(fd, offset, data, result);
}

}  // namespace engram::poolserver::nvme
