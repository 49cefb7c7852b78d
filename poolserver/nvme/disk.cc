#include "poolserver/nvme/disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace engram::poolserver::nvme {
namespace {

template <class Result>
Result OrErrno(Result result) {
  return result < 0 ? -errno : result;
}

class SystemDisk final : public Disk {
 public:
  int Open(const std::string& path, Mode mode) override {
    const int flags = O_DIRECT | O_CLOEXEC | O_NOFOLLOW;
    return OrErrno(mode == Mode::kRead
                       ? open(path.c_str(), flags | O_RDONLY)
                       : open(path.c_str(), flags | O_RDWR | O_CREAT | O_EXCL, 0600));
  }
  void Close(int fd) override { close(fd); }
  std::int64_t Read(int fd, std::span<std::byte> to, std::uint64_t offset) override {
    return OrErrno<std::int64_t>(pread(fd, to.data(), to.size(), static_cast<off_t>(offset)));
  }
  std::int64_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset) override {
    return OrErrno<std::int64_t>(pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset)));
  }
  int Allocate(int fd, std::uint64_t bytes) override {
    return OrErrno(fallocate(fd, 0, 0, static_cast<off_t>(bytes)));
  }
  // Not fdatasync: the extents that Allocate made become written ones, which is metadata.
  int Sync(int fd) override { return OrErrno(fsync(fd)); }
  int Rename(const std::string& from, const std::string& to) override {
    // Whoever made a file of that name in the meantime keeps it.
    return OrErrno(renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
  }
  int Remove(const std::string& path) override { return OrErrno(unlink(path.c_str())); }
  int SyncDirectory(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const int result = OrErrno(fsync(fd));
    close(fd);
    return result;
  }
  std::int64_t FreeBytes(const std::string& directory) override {
    struct statvfs info {};
    if (statvfs(directory.c_str(), &info) != 0) return -errno;
    return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  }
};

}  // namespace

Disk& Disk::System() {
  static SystemDisk disk;
  return disk;
}

}  // namespace engram::poolserver::nvme
