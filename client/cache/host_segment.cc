#include "client/cache/host_segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cache/host_set.h"
#include "client/cache/host_slot.h"
#include "engram/sealed_row.h"
#include "engram/version.h"

namespace engram::client {
namespace {

constexpr std::uint64_t kMagic = 0x48434d4152474e45;  // "ENGRAMCH"
constexpr std::uint32_t kFormat = 2;
constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kTriesASecond = 200;

// How long another process may take to make the segment: the kernel clears every page of it.
std::uint64_t SecondsToMake(std::uint64_t bytes) { return 5 + (bytes >> 30) * 5; }

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t build;  // CRC32C of the version's name
  std::uint64_t bytes;  // of the file
  std::uint64_t sets;
  std::uint32_t row_bytes, unit_rows, ways, set_bytes;
  TableUid table;
  std::uint32_t owners;  // that opened it; counted atomically
};
static_assert(sizeof(SegmentHeader) <= kHeaderBytes);

SegmentHeader HeaderFor(const HostSegmentOptions& options) {
  SegmentHeader header{};
  header.magic = kMagic;
  header.format = kFormat;
  header.build = Crc32c(0, Version().data(), Version().size());
  header.bytes = kHeaderBytes + options.bytes;
  header.sets = options.sets;
  header.row_bytes = options.row_bytes;
  header.unit_rows = options.unit_rows;
  header.ways = HostSet::kWays;
  header.set_bytes = sizeof(HostSet);
  header.table = options.table;
  return header;
}

// Why a segment with this header cannot be used; empty: it can.
std::string Difference(const SegmentHeader& is, const SegmentHeader& wanted,
                       std::uint64_t file_bytes) {
  const auto differs = [](const char* what, std::uint64_t a, std::uint64_t b) {
    return absl::StrCat("its ", what, " is ", a, ", this process wants ", b);
  };
  if (is.format != wanted.format) return differs("format", is.format, wanted.format);
  if (is.build != wanted.build) return "it was made by another version of the library";
  if (is.bytes != wanted.bytes) return differs("size", is.bytes, wanted.bytes);
  if (file_bytes != is.bytes) return absl::StrCat("it was cut to ", file_bytes, " bytes");
  if (is.row_bytes != wanted.row_bytes) return differs("row", is.row_bytes, wanted.row_bytes);
  if (is.unit_rows != wanted.unit_rows) return differs("unit", is.unit_rows, wanted.unit_rows);
  if (is.sets != wanted.sets || is.ways != wanted.ways || is.set_bytes != wanted.set_bytes)
    return "its geometry is another";
  if (is.table != wanted.table) return "it is another table's";
  return "";
}

absl::Status Error(absl::StatusCode code, const std::string& path, const std::string& why) {
  return absl::Status(code, absl::StrCat("host cache ", path, ": ", why));
}
absl::Status ErrnoError(const std::string& path, const char* what, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("host cache ", path, ": ", what));
}

bool Same(int fd, const std::string& path) {
  struct stat a, b;
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_ino == b.st_ino &&
         a.st_dev == b.st_dev;
}

enum class Next : std::uint8_t { kUse, kMake, kAgain };

// What to do with the file, which is locked: exclusively, when nobody else uses it.
absl::StatusOr<Next> Judge(int fd, const std::string& path, const SegmentHeader& wanted,
                           bool alone) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError(path, "stat", errno);
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
    return Error(absl::StatusCode::kPermissionDenied, path,
                 "it is not a file of this user alone (mode 0600): remove it");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  SegmentHeader is{};
  const ssize_t got = pread(fd, static_cast<void*>(&is), sizeof is, 0);
  if (got < 0) return ErrnoError(path, "reading", errno);
  const bool empty = bytes == 0 || (got == static_cast<ssize_t>(sizeof is) && is.magic == 0);
  if (!empty && (got != static_cast<ssize_t>(sizeof is) || is.magic != kMagic))
    return Error(absl::StatusCode::kFailedPrecondition, path,
                 "it is not a row cache, or was cut short: remove it");
  if (!alone) {
    if (empty) return Next::kAgain;  // its maker goes away
    const std::string difference = Difference(is, wanted, bytes);
    if (difference.empty()) return Next::kUse;
    return Error(absl::StatusCode::kFailedPrecondition, path,
                 absl::StrCat(difference,
                              ", and it is in use: end the processes that use it, or "
                              "open with the same version and cache_bytes"));
  }
  if (bytes == 0) return Next::kMake;
  if (!empty && Difference(is, wanted, bytes).empty()) return Next::kUse;
  // A new file, not this one cut to size: nobody's memory goes away.
  unlink(path.c_str());
  return Next::kAgain;
}

absl::Status Make(int fd, const std::string& path, const SegmentHeader& header) {
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(header.bytes));
  if (error != 0) {
    unlink(path.c_str());
    return error == ENOSPC ? Error(absl::StatusCode::kResourceExhausted, path,
                                   absl::StrCat(header.bytes,
                                                " bytes do not fit there: make "
                                                "cache_bytes smaller, or /dev/shm "
                                                "larger"))
                           : ErrnoError(path, "making it", error);
  }
  if (pwrite(fd, static_cast<const void*>(&header), sizeof header, 0) ==
      static_cast<ssize_t>(sizeof header))
    return absl::OkStatus();
  return ErrnoError(path, "writing its header", errno);
}

// One try; *fd is locked for sharing when kUse is returned.
absl::StatusOr<Next> Try(const std::string& path, const SegmentHeader& wanted, int* fd) {
  *fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (*fd < 0) return ErrnoError(path, "opening it", errno);
  const bool alone = flock(*fd, LOCK_EX | LOCK_NB) == 0;
  if (!alone && flock(*fd, LOCK_SH | LOCK_NB) != 0) return Next::kAgain;  // it is being made
  if (!Same(*fd, path)) return Next::kAgain;                              // it was removed
  auto next = Judge(*fd, path, wanted, alone);
  if (next.ok() && *next == Next::kMake) {
    if (absl::Status made = Make(*fd, path, wanted); !made.ok()) return made;
    next = Next::kUse;
  }
  // Turning one lock into the other lets others in between; what they find is whole.
  if (next.ok() && *next == Next::kUse && alone && flock(*fd, LOCK_SH) != 0)
    return ErrnoError(path, "locking it", errno);
  if (next.ok() && *next == Next::kUse && !Same(*fd, path)) return Next::kAgain;
  return next;
}

}  // namespace

std::string HostSegment::PathOf(const HostSegmentOptions& options) {
  const std::uint32_t tenant = Crc32c(0, options.tenant.data(), options.tenant.size());
  return absl::StrCat(options.folder, "/engram-cache-", geteuid(), "-",
                      absl::Hex(tenant, absl::kZeroPad8), "-", options.table.Hex());
}

absl::StatusOr<std::unique_ptr<HostSegment>> HostSegment::Open(const HostSegmentOptions& options) {
  std::unique_ptr<HostSegment> segment(new HostSegment());
  segment->path_ = PathOf(options);
  const SegmentHeader wanted = HeaderFor(options);
  for (std::uint64_t tries = 0;; ++tries) {
    int fd = -1;
    auto next = Try(segment->path_, wanted, &fd);
    if (next.ok() && *next == Next::kUse) {
      segment->fd_ = fd;
      break;
    }
    if (fd >= 0) close(fd);
    if (!next.ok()) return next.status();
    const std::uint64_t seconds = SecondsToMake(wanted.bytes);
    if (tries == seconds * kTriesASecond)
      return Error(absl::StatusCode::kUnavailable, segment->path_,
                   absl::StrCat("another process has been making it for ", seconds,
                                " seconds: look whether that process stands still, or try again"));
    const timespec pause{0, 1'000'000'000 / kTriesASecond};
    nanosleep(&pause, nullptr);
  }
  void* memory = mmap(nullptr, wanted.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd_, 0);
  if (memory == MAP_FAILED) return ErrnoError(segment->path_, "mapping it", errno);
  segment->memory_ = static_cast<std::byte*>(memory);
  segment->mapped_bytes_ = wanted.bytes;
  segment->data_ = segment->memory_ + kHeaderBytes;
  madvise(memory, wanted.bytes, MADV_HUGEPAGE);  // where the host allows it
  auto* header = reinterpret_cast<SegmentHeader*>(segment->memory_);
  segment->owner_ = std::atomic_ref(header->owners).fetch_add(1, std::memory_order_relaxed) + 1;
  return segment;
}

HostSegment::~HostSegment() {
  if (memory_ != nullptr) munmap(memory_, mapped_bytes_);
  if (fd_ < 0) return;
  // The last one removes it.
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 && Same(fd_, path_)) unlink(path_.c_str());
  close(fd_);
}

}  // namespace engram::client
