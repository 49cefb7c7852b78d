#include "poolserver/nvme/row_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"

namespace engram::poolserver::nvme {
namespace {

// Of one sequential read or write.
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

absl::Status NoMemory(std::uint64_t bytes, const std::string& path) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a buffer of ", bytes, " bytes for ", path));
}

std::string Differs(const char* what, const std::string& has, const std::string& wanted) {
  return absl::StrCat(what, " ", has, " instead of ", wanted);
}

// In what a header is not the wanted one; empty: in nothing that matters.
std::string Difference(const RowFileHeader& header, const RowFileHeader& wanted) {
  if (header.version != wanted.version)
    return Differs("format version", absl::StrCat(header.version), absl::StrCat(wanted.version));
  if (header.owner != wanted.owner) return Differs("owner", header.owner.name, wanted.owner.name);
  if (header.shard.table != wanted.shard.table)
    return Differs("table", header.shard.table.Hex(), wanted.shard.table.Hex());
  if (header.shard.shard != wanted.shard.shard)
    return Differs("shard", absl::StrCat(header.shard.shard.value()),
                   absl::StrCat(wanted.shard.shard.value()));
  if (header.spec_digest != wanted.spec_digest)
    return Differs("spec digest", header.spec_digest, wanted.spec_digest);
  if (header.stride != wanted.stride || header.rows != wanted.rows)
    return Differs("rows", absl::StrCat(header.rows, " of ", header.stride, " bytes"),
                   absl::StrCat(wanted.rows, " of ", wanted.stride, " bytes"));
  if (header.block_bytes != wanted.block_bytes)
    return Differs("blocks of", absl::StrCat(header.block_bytes), absl::StrCat(wanted.block_bytes));
  return {};
}

absl::StatusOr<RowFileHeader> HeaderOf(Disk* disk, int fd, const std::string& path) {
  ReadBuffer buffer;
  std::byte* const bytes = buffer.Ensure(kHeaderBytes);
  if (bytes == nullptr) return NoMemory(kHeaderBytes, path);
  const std::int64_t got = disk->Read(fd, {bytes, kHeaderBytes}, 0);
  if (got < 0) return DiskError(got, "cannot read the header of", path);
  if (got < static_cast<std::int64_t>(kHeaderBytes))
    return absl::DataLossError(absl::StrCat(path, " is too short for a row file: ", got, " bytes"));
  auto header = ParseHeader({bytes, kHeaderBytes});
  if (!header.ok()) return absl::DataLossError(absl::StrCat(path, ": ", header.status().message()));
  return header;
}

}  // namespace

absl::Status DiskError(std::int64_t result, const std::string& what, const std::string& path) {
  const int error = static_cast<int>(-result);
  const std::string said = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return absl::ResourceExhaustedError(said);
    case ENOENT: return absl::NotFoundError(said);
    case EEXIST: return absl::AlreadyExistsError(said);
    case EACCES:
    case EPERM:
    case EROFS: return absl::PermissionDeniedError(said);
    default: return absl::DataLossError(said);
  }
}

absl::StatusOr<RowFileHeader> RowFile::ReadHeader(Disk* disk, const std::string& path) {
  const int fd = disk->Open(path, Disk::Mode::kRead);
  if (fd < 0) return DiskError(fd, "cannot open", path);
  auto header = HeaderOf(disk, fd, path);
  disk->Close(fd);
  return header;
}

RowFile::RowFile(Disk* disk, std::string path, int fd, const RowFileHeader& header)
    : disk_(disk),
      path_(std::move(path)),
      fd_(fd),
      layout_(header.stride, header.rows),
      seal_(header.file_id, header.shard) {}

absl::StatusOr<std::unique_ptr<RowFile>> RowFile::Open(Disk* disk, const std::string& path,
                                                       const RowFileHeader& wanted) {
  const int fd = disk->Open(path, Disk::Mode::kRead);
  if (fd < 0) return DiskError(fd, "cannot open", path);
  auto header = HeaderOf(disk, fd, path);
  absl::Status status = header.status();
  if (status.ok()) {
    const std::string difference = Difference(*header, wanted);
    if (!difference.empty()) {
      status = absl::FailedPreconditionError(
          absl::StrCat(path, " is not this shard's: it has ", difference,
                       "; move it away or delete it, it is never overwritten"));
    }
  }
  if (!status.ok()) {
    disk->Close(fd);
    return status;
  }
  return std::unique_ptr<RowFile>(new RowFile(disk, path, fd, *header));
}

RowFile::~RowFile() { disk_->Close(fd_); }

template <class Visit>
absl::Status RowFile::ForEachBlock(std::uint32_t first, std::uint32_t end, Visit visit) const {
  const std::uint64_t block_bytes = layout_.block_bytes();
  const auto piece = static_cast<std::uint32_t>(kPieceBytes / block_bytes);
  ReadBuffer buffer;
  for (std::uint32_t at = first; at < end; at += piece) {
    const std::uint32_t blocks = std::min(piece, end - at);
    const std::uint64_t bytes = blocks * block_bytes, offset = at * block_bytes;
    std::byte* const data = buffer.Ensure(piece * block_bytes);
    if (data == nullptr) return NoMemory(piece * block_bytes, path_);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::int64_t got = disk_->Read(fd_, {data + done, bytes - done}, offset + done);
      if (got == -EINTR || got == -EAGAIN) continue;
      if (got < 0)
        return DiskError(got, absl::StrCat("cannot read ", bytes, " bytes at ", offset, " of"),
                         path_);
      if (got == 0 || got % static_cast<std::int64_t>(kDirectAlignment) != 0)
        return absl::DataLossError(
            absl::StrCat(path_, " ends before block ", at + blocks, " does"));
      done += static_cast<std::uint64_t>(got);
    }
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::span<const std::byte> block(data + i * block_bytes, block_bytes);
      if (!Sound(at + i, block))
        return absl::DataLossError(absl::StrCat("block ", at + i, " of ", path_, " is damaged"));
      visit(at + i, block.data());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::uint32_t>> RowFile::Verify() const {
  std::vector<std::uint32_t> checksums;
  checksums.reserve(layout_.checksums());
  absl::Status sound =
      ForEachBlock(1, layout_.blocks(), [&](std::uint32_t block, const std::byte* bytes) {
        if (block <= layout_.data_blocks()) return;
        const std::size_t count = std::min<std::size_t>(layout_.checksums_per_block(),
                                                        layout_.checksums() - checksums.size());
        checksums.resize(checksums.size() + count);
        std::memcpy(checksums.data() + checksums.size() - count, bytes, count * 4);
      });
  if (!sound.ok()) return sound;
  return checksums;
}

absl::Status RowFile::Read(std::uint64_t slot, std::uint64_t rows, std::byte* out) const {
  ENGRAM_CHECK(rows > 0 && slot + rows <= layout_.rows());
  const std::uint64_t stride = layout_.stride();
  return ForEachBlock(layout_.BlockOf(slot), layout_.BlockOf(slot + rows - 1) + 1,
                      [&](std::uint32_t block, const std::byte* bytes) {
                        const std::uint64_t first = std::max(layout_.FirstRowOf(block), slot);
                        const std::uint64_t end = std::min(
                            layout_.FirstRowOf(block) + layout_.RowsIn(block), slot + rows);
                        std::memcpy(out + (first - slot) * stride,
                                    bytes + layout_.OffsetInBlock(first), (end - first) * stride);
                      });
}

}  // namespace engram::poolserver::nvme
