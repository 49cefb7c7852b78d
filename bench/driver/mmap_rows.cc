#include "bench/driver/mmap_rows.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engram/synthetic.h"

namespace engram::bench {

absl::StatusOr<std::unique_ptr<MmapRows>> MmapRows::Create(const std::string& path,
                                                           const TableShape& shape) {
  std::unique_ptr<MmapRows> rows(new MmapRows(path, shape));
  rows->fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (rows->fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  if (absl::Status ok = rows->Write(); !ok.ok()) return ok;
  void* const mapped =
      mmap(nullptr, shape.rows * shape.row_bytes, PROT_READ, MAP_SHARED, rows->fd_, 0);
  if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  rows->data_ = static_cast<std::byte*>(mapped);
  // No read ahead of pages that nobody wants: the best that a mapping can do.
  madvise(mapped, shape.rows * shape.row_bytes, MADV_RANDOM);
  rows->Drop();
  return rows;
}

MmapRows::~MmapRows() {
  if (data_ != nullptr) munmap(data_, shape_.rows * shape_.row_bytes);
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

absl::Status MmapRows::Write() {
  constexpr std::uint64_t kRowsAtOnce = 16384;
  std::vector<std::byte> some(kRowsAtOnce * shape_.row_bytes);
  for (std::uint64_t first = 0; first < shape_.rows; first += kRowsAtOnce) {
    const std::uint64_t rows = std::min(kRowsAtOnce, shape_.rows - first);
    for (std::uint64_t i = 0; i < rows; ++i) {
      FillSyntheticRow(shape_.seed, RowId(first + i),
                       {some.data() + i * shape_.row_bytes, shape_.row_bytes});
    }
    const std::uint64_t bytes = rows * shape_.row_bytes;
    const auto offset = static_cast<off_t>(first * shape_.row_bytes);
    if (pwrite(fd_, some.data(), bytes, offset) != static_cast<ssize_t>(bytes))
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  }
  if (fsync(fd_) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", path_));
  return absl::OkStatus();
}

void MmapRows::Drop() {
  madvise(data_, shape_.rows * shape_.row_bytes, MADV_DONTNEED);
  posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

absl::Status MmapRows::Read(std::span<const Batch> batches) {
  for (const Batch& batch : batches) {
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      std::memcpy(batch.out + i * shape_.row_bytes, data_ + batch.ids[i].value() * shape_.row_bytes,
                  shape_.row_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace engram::bench
