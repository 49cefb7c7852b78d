// A disk that fails on purpose: reads that end badly, a device that fills up, a file system without
// direct I/O, and a loss of power at any step. Wraps a real disk, whose files are real. For tests.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "poolserver/nvme/disk.h"

namespace engram::poolserver::nvme {

class FaultyDisk final : public Disk {
 public:
  explicit FaultyDisk(Disk* disk) : disk_(disk) {}

  // The next `times` reads that start at `offset`, of whatever file, end with `result`: -errno, or
  // fewer bytes than were asked for.
  void FailReads(std::uint64_t offset, int result, int times);
  // A file can be opened, but not for direct I/O.
  void RefuseDirectIo();
  // Writes past so many bytes, all files together, find the device full.
  void FillUpAfter(std::uint64_t bytes);
  // The power goes after so many steps; a step is a block of 4096 bytes that is written, a sync, a
  // rename. A write that it meets is torn there; everything later fails.
  void CutPowerAfter(std::uint64_t steps);
  // What a device may have lost of what was not synced when the power went: each block is either
  // there or zeros, each name either changed or not, as `random` has it. Call when nothing is open.
  void LoseWhatWasNotSynced(Random* random);
  std::uint64_t steps() const;
  // Reads that an io_uring had been given and not ended yet, at most so far.
  std::uint64_t most_in_flight() const;

  int Open(const std::string& path, Mode mode) override;
  void Close(int fd) override;
  std::int64_t Read(int fd, std::span<std::byte> to, std::uint64_t offset) override;
  std::int64_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset) override;
  int Allocate(int fd, std::uint64_t bytes) override;
  int Sync(int fd) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int SyncDirectory(const std::string& path) override;
  std::int64_t FreeBytes(const std::string& directory) override;
  void ReadBegins() override;
  int ReadEnded(int fd, std::uint64_t offset, std::span<std::byte> data, int result) override;

 private:
  struct Fault {
    int result = 0;
    int times = 0;
  };

  // How many of `wanted` steps are done before the power goes.
  std::uint64_t Take(std::uint64_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<int> FaultAt(std::uint64_t offset);

  Disk* const disk_;
  mutable Mutex mutex_;
  bool refuses_direct_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_step_ ABSL_GUARDED_BY(mutex_) = ~std::uint64_t{0};
  std::uint64_t room_ ABSL_GUARDED_BY(mutex_) = ~std::uint64_t{0};
  std::uint64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t most_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::string> paths_ ABSL_GUARDED_BY(mutex_);  // of open files
  std::map<std::string, std::vector<std::uint64_t>> unsynced_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> renamed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::poolserver::nvme
