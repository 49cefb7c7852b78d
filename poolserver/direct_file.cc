#include "poolserver/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {
namespace {

// Block size of every file system that we may meet divides it.
constexpr std::uint64_t kAlignment = 4096;

}  // namespace

ReadBuffer::~ReadBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::byte* ReadBuffer::Ensure(std::size_t bytes) {
  if (bytes <= bytes_) return data_;
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  return data_;
}

absl::StatusOr<std::unique_ptr<DirectFile>> DirectFile::Open(const std::string& path) {
  bool direct = true;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0 && errno == EINVAL) {
    direct = false;
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return std::unique_ptr<DirectFile>(new DirectFile(path, fd, direct));
}

DirectFile::~DirectFile() { close(fd_); }

absl::StatusOr<const std::byte*> DirectFile::Read(std::uint64_t offset, std::uint64_t bytes,
                                                  ReadBuffer* buffer) const {
  const std::uint64_t first = offset / kAlignment * kAlignment;
  const std::uint64_t end = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* const data = buffer->Ensure(end - first);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a read buffer of ", end - first, " bytes for ", path_));
  }
  std::uint64_t at = first;
  while (at < offset + bytes) {
    const ssize_t got = pread(fd_, data + (at - first), end - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(absl::StrCat("cannot read ", path_, " at offset ", at, " (",
                                              end - at, " bytes): ", std::strerror(errno)));
    }
    if (got == 0) {
      struct stat info {};
      fstat(fd_, &info);
      return absl::DataLossError(absl::StrCat(path_, " is too short: bytes ", offset, " to ",
                                              offset + bytes,
                                              " hold rows by its header, but the file ends at ",
                                              info.st_size, "; copy the checkpoint again"));
    }
    at += static_cast<std::uint64_t>(got);
    // A direct read that stopped between blocks can only have met the end of the file.
    if (direct_ && at % kAlignment != 0 && at < offset + bytes) {
      at = at / kAlignment * kAlignment;
      struct stat info {};
      fstat(fd_, &info);
      if (static_cast<std::uint64_t>(info.st_size) < offset + bytes) {
        return absl::DataLossError(absl::StrCat(path_, " is too short: bytes ", offset, " to ",
                                                offset + bytes,
                                                " hold rows by its header, but the file ends at ",
                                                info.st_size, "; copy the checkpoint again"));
      }
    }
  }
  return data + (offset - first);
}

}  // namespace engram::poolserver
