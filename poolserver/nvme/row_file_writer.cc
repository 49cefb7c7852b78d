// The half of row_file.h that writes.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "poolserver/nvme/row_file.h"

namespace engram::poolserver::nvme {
namespace {

constexpr std::uint64_t kWriteBytes = std::uint64_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<RowFileWriter>> RowFileWriter::Create(Disk* disk,
                                                                     const std::string& path,
                                                                     const RowFileHeader& header) {
  const std::string partial = path + kPartialSuffix;
  const int fd = disk->Open(partial, Disk::Mode::kCreate);
  if (fd == -EINVAL) {
    return absl::FailedPreconditionError(
        absl::StrCat("the file system of ", path,
                     " has no direct I/O; --nvme-dir must lie on one that has (ext4, xfs)"));
  }
  if (fd < 0) return DiskError(fd, "cannot create", partial);
  std::unique_ptr<RowFileWriter> writer(new RowFileWriter(disk, path, fd, header));
  const std::uint64_t bytes = writer->layout_.file_bytes();
  const int room = disk->Allocate(fd, bytes);
  // Without it a full disk is met later, by a write.
  if (room < 0 && room != -EOPNOTSUPP) {
    return DiskError(room, absl::StrCat("cannot take ", bytes, " bytes for"), partial);
  }
  return writer;
}

RowFileWriter::RowFileWriter(Disk* disk, std::string path, int fd, const RowFileHeader& header)
    : disk_(disk),
      path_(std::move(path)),
      partial_(path_ + kPartialSuffix),
      fd_(fd),
      header_(header),
      layout_(header.stride, header.rows),
      seal_(header.file_id, header.shard) {}

RowFileWriter::~RowFileWriter() {
  disk_->Close(fd_);
  if (!committed_) disk_->Remove(partial_);
}

void RowFileWriter::CopyRows(std::uint64_t slot, std::uint32_t rows, const std::byte* from,
                             std::byte* block) const {
  std::memcpy(block + layout_.OffsetInBlock(slot), from, std::uint64_t{rows} * layout_.stride());
}

absl::Status RowFileWriter::Write(std::uint64_t slot, std::uint64_t rows, const std::byte* from) {
  ENGRAM_CHECK(rows > 0 && slot + rows <= layout_.rows());
  if (failed_)
    return absl::DataLossError(absl::StrCat("an earlier write to ", partial_, " failed"));
  const std::uint64_t stride = layout_.stride(), end = slot + rows;
  absl::Status status;
  for (std::uint64_t at = slot; at < end && status.ok();) {
    const std::uint32_t block = layout_.BlockOf(at);
    const std::uint64_t block_end = layout_.FirstRowOf(block) + layout_.RowsIn(block);
    const std::byte* const rows_from = from + (at - slot) * stride;
    if (at != layout_.FirstRowOf(block) || block_end > end) {
      const std::uint64_t until = std::min(block_end, end);
      status = WriteEdge(block, at, static_cast<std::uint32_t>(until - at), rows_from);
      at = until;
      continue;
    }
    std::uint32_t whole_end = layout_.BlockOf(end - 1);  // the block of the last row
    if (layout_.FirstRowOf(whole_end) + layout_.RowsIn(whole_end) == end) ++whole_end;
    status = WriteWhole(block, whole_end, rows_from);
    at = std::min(layout_.FirstRowOf(whole_end), layout_.rows());
  }
  if (!status.ok()) failed_ = true;
  rows_written_ += rows;
  return status;
}

absl::Status RowFileWriter::WriteWhole(std::uint32_t first, std::uint32_t end,
                                       const std::byte* from) {
  const std::uint64_t block_bytes = layout_.block_bytes();
  const auto piece = static_cast<std::uint32_t>(kWriteBytes / block_bytes);
  ReadBuffer buffer;
  for (std::uint32_t at = first; at < end; at += piece) {
    const std::uint32_t blocks = std::min(piece, end - at);
    std::byte* const data = buffer.Ensure(piece * block_bytes);
    if (data == nullptr) return absl::ResourceExhaustedError("no memory for a write buffer");
    std::memset(data, 0, blocks * block_bytes);
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t rows = layout_.RowsIn(at + i);
      CopyRows(layout_.FirstRowOf(at + i), rows, from, data + i * block_bytes);
      from += std::uint64_t{rows} * layout_.stride();
    }
    if (absl::Status ok = WriteBlocks(at, {data, blocks * block_bytes}); !ok.ok()) return ok;
  }
  return absl::OkStatus();
}

absl::Status RowFileWriter::WriteEdge(std::uint32_t block, std::uint64_t slot, std::uint32_t rows,
                                      const std::byte* from) {
  std::unique_ptr<Edge> whole;
  {
    MutexLock lock(&mutex_);
    std::unique_ptr<Edge>& edge = edges_[block];
    if (edge == nullptr) {
      edge = std::make_unique<Edge>();
      edge->bytes = edge->buffer.Ensure(layout_.block_bytes());
      if (edge->bytes == nullptr) return absl::ResourceExhaustedError("no memory for a block");
    }
    CopyRows(slot, rows, from, edge->bytes);
    edge->rows += rows;
    if (edge->rows < layout_.RowsIn(block)) return absl::OkStatus();
    whole = std::move(edge);
    edges_.erase(block);
  }
  return WriteBlocks(block, {whole->bytes, layout_.block_bytes()});
}

// Adds the trailers.
absl::Status RowFileWriter::WriteBlocks(std::uint32_t first, std::span<std::byte> blocks) {
  const std::uint64_t block_bytes = layout_.block_bytes();
  for (std::uint32_t i = 0; i < blocks.size() / block_bytes; ++i)
    seal_.Seal(first + i, blocks.subspan(i * block_bytes, block_bytes));
  return WriteAll(first * block_bytes, blocks);
}

absl::Status RowFileWriter::WriteAll(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t wrote = disk_->Write(fd_, bytes, offset);
    if (wrote == -EINTR || wrote == -EAGAIN) continue;
    if (wrote < 0)
      return DiskError(wrote, absl::StrCat("cannot write ", bytes.size(), " bytes to"), partial_);
    // A direct write that stops early has met the end of the device.
    if (wrote == 0 || wrote % static_cast<std::int64_t>(kDirectAlignment) != 0)
      return DiskError(-ENOSPC, absl::StrCat("cannot write ", bytes.size(), " bytes to"), partial_);
    offset += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status RowFileWriter::WriteChecksums(std::span<const std::uint32_t> checksums) {
  ReadBuffer buffer;
  std::byte* const bytes = buffer.Ensure(layout_.block_bytes());
  if (bytes == nullptr) return absl::ResourceExhaustedError("no memory for a block");
  for (std::uint32_t i = 0; i < layout_.checksum_blocks(); ++i) {
    const auto some = checksums.subspan(
        std::size_t{i} * layout_.checksums_per_block(),
        std::min<std::size_t>(layout_.checksums_per_block(),
                              checksums.size() - std::size_t{i} * layout_.checksums_per_block()));
    std::memset(bytes, 0, layout_.block_bytes());
    std::memcpy(bytes, some.data(), some.size_bytes());
    absl::Status ok = WriteBlocks(1 + layout_.data_blocks() + i, {bytes, layout_.block_bytes()});
    if (!ok.ok()) return ok;
  }
  return absl::OkStatus();
}

absl::Status RowFileWriter::Commit(std::span<const std::uint32_t> checksums) {
  if (failed_)
    return absl::DataLossError(absl::StrCat("an earlier write to ", partial_, " failed"));
  if (rows_written_ != layout_.rows() || checksums.size() != layout_.checksums()) {
    return absl::InternalError(absl::StrCat(rows_written_.load(), " of ", layout_.rows(),
                                            " rows were written to ", partial_, ", with ",
                                            checksums.size(), " checksums"));
  }
  if (absl::Status ok = WriteChecksums(checksums); !ok.ok()) return ok;
  // The header comes last: until it is there nothing in the file says that it is one.
  if (int synced = disk_->Sync(fd_); synced < 0) return DiskError(synced, "cannot sync", partial_);
  ReadBuffer buffer;
  std::byte* const bytes = buffer.Ensure(layout_.block_bytes());
  if (bytes == nullptr) return absl::ResourceExhaustedError("no memory for a header");
  std::memset(bytes, 0, layout_.block_bytes());
  WriteHeader(header_, {bytes, kHeaderBytes});
  if (absl::Status ok = WriteAll(0, {bytes, layout_.block_bytes()}); !ok.ok()) return ok;
  if (int synced = disk_->Sync(fd_); synced < 0) return DiskError(synced, "cannot sync", partial_);
  return Publish();
}

absl::Status RowFileWriter::Publish() {
  if (int renamed = disk_->Rename(partial_, path_); renamed < 0)
    return DiskError(renamed, absl::StrCat("cannot rename ", partial_, " to"), path_);
  committed_ = true;
  const std::string directory = std::filesystem::path(path_).parent_path();
  if (int synced = disk_->SyncDirectory(directory); synced < 0) {
    disk_->Remove(path_);  // a name that may be gone after a loss of power is not announced
    return DiskError(synced, "cannot sync directory", directory);
  }
  return absl::OkStatus();
}

}  // namespace engram::poolserver::nvme
