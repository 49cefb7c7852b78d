// One shard on disk: a writer that makes the file, and the file once it is whole.
//
// A file appears under its name only when every byte of it is durable: it is written under
// NAME.partial, header last, synced, renamed, and the directory is synced. Whatever happens in
// between (a crash, a loss of power, a full disk) leaves a partial file, which serves nobody and is
// removed at the next start. Files are never changed afterwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/mutex.h"
#include "poolserver/direct_file.h"
#include "poolserver/nvme/disk.h"
#include "poolserver/nvme/row_file_format.h"

namespace engram::poolserver::nvme {

// What an operation on `path` met, as a status that names it: -errno in `result`.
absl::Status DiskError(std::int64_t result, const std::string& what, const std::string& path);

// A whole file, open for reading. Thread-safe.
class RowFile {
 public:
  // The header of a file that may be anybody's. NotFound: there is none. DataLoss: not a row file,
  // or damaged. Of another version only `version` is filled.
  static absl::StatusOr<RowFileHeader> ReadHeader(Disk* disk, const std::string& path);
  // FailedPrecondition says in what the file differs from `wanted`, whose file_id counts for
  // nothing; DataLoss: it is damaged or too short; FailedPrecondition: no direct I/O here.
  static absl::StatusOr<std::unique_ptr<RowFile>> Open(Disk* disk, const std::string& path,
                                                       const RowFileHeader& wanted);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Reads and checks every block. DataLoss names the first that is wrong. Returns the CRC32Cs of
  // the runs of 256 rows that the file was committed with.
  absl::StatusOr<std::vector<std::uint32_t>> Verify() const;
  // Rows [slot, slot + rows), `stride` apart, in large sequential reads and past any cache: for the
  // scrubber and for moves. DataLoss: a block could not be read or fails its check.
  absl::Status Read(std::uint64_t slot, std::uint64_t rows, std::byte* out) const;

  const RowFileLayout& layout() const { return layout_; }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  bool Sound(std::uint32_t block, std::span<const std::byte> bytes) const {
    return seal_.Check(block, bytes);
  }
  // Its place among the files that the ring has registered; -1: none (yet). The ring's to set.
  std::atomic<int> ring_slot{-1};

 private:
  RowFile(Disk* disk, std::string path, int fd, const RowFileHeader& header);
  // visit(block, its bytes) for whole, checked blocks [first, end).
  template <class Visit>
  absl::Status ForEachBlock(std::uint32_t first, std::uint32_t end, Visit visit) const;

  Disk* const disk_;
  const std::string path_;
  const int fd_;
  const RowFileLayout layout_;
  const BlockSeal seal_;
};

// Makes one file. Thread-safe: any threads, each row once, in any order.
class RowFileWriter {
 public:
  // `path` is the final name. AlreadyExists: somebody writes it, or it is there. ResourceExhausted:
  // no room on the device. FailedPrecondition: no direct I/O here.
  static absl::StatusOr<std::unique_ptr<RowFileWriter>> Create(Disk* disk, const std::string& path,
                                                               const RowFileHeader& header);
  // Without Commit: removes what was written.
  ~RowFileWriter();
  RowFileWriter(const RowFileWriter&) = delete;
  RowFileWriter& operator=(const RowFileWriter&) = delete;

  // Rows [slot, slot + rows), `stride` apart at `from`. After an error the writer only fails.
  absl::Status Write(std::uint64_t slot, std::uint64_t rows, const std::byte* from);
  // Makes the file durable and gives it its name. REQUIRES: every row was written; one checksum for
  // each 256 rows.
  absl::Status Commit(std::span<const std::uint32_t> checksums);
  std::uint32_t stride() const { return layout_.stride(); }

 private:
  // A block whose rows come in several writes.
  struct Edge {
    ReadBuffer buffer;
    std::byte* bytes = nullptr;
    std::uint32_t rows = 0;
  };

  RowFileWriter(Disk* disk, std::string path, int fd, const RowFileHeader& header);
  absl::Status WriteWhole(std::uint32_t first, std::uint32_t end, const std::byte* from);
  absl::Status WriteEdge(std::uint32_t block, std::uint64_t slot, std::uint32_t rows,
                         const std::byte* from);
  absl::Status WriteBlocks(std::uint32_t first, std::span<std::byte> blocks);
  absl::Status WriteAll(std::uint64_t offset, std::span<const std::byte> bytes);
  absl::Status WriteChecksums(std::span<const std::uint32_t> checksums);
  absl::Status Publish();
  void CopyRows(std::uint64_t slot, std::uint32_t rows, const std::byte* from,
                std::byte* block) const;

  Disk* const disk_;
  const std::string path_, partial_;
  const int fd_;
  const RowFileHeader header_;
  const RowFileLayout layout_;
  const BlockSeal seal_;
  bool committed_ = false;
  std::atomic<bool> failed_{false};
  std::atomic<std::uint64_t> rows_written_{0};
  Mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Edge>> edges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::poolserver::nvme
