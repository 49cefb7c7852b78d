// What the NVMe tier asks of the operating system, as one seam: files opened for direct I/O, and
// the steps that make them durable. Production uses Disk::System(); tests wrap it (faulty_disk.h)
// to fail a read, tear a write or cut the power.
//
// Every function returns what the system call returns, or -errno; it never retries and never falls
// back. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace engram::poolserver::nvme {

// What direct I/O is aligned to, in memory and in the file: the block of every device and file
// system that we may meet divides it.
inline constexpr std::uint64_t kDirectAlignment = 4096;

class Disk {
 public:
  // How a file is opened, always with O_DIRECT.
  enum class Mode : std::uint8_t { kRead, kCreate };  // kCreate: -EEXIST if it is there

  virtual ~Disk() = default;
  static Disk& System();

  // -EINVAL: the file system has no direct I/O.
  virtual int Open(const std::string& path, Mode mode) = 0;
  virtual void Close(int fd) = 0;
  virtual std::int64_t Read(int fd, std::span<std::byte> to, std::uint64_t offset) = 0;
  virtual std::int64_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset) = 0;
  // Room for `bytes` from the start of the file.
  virtual int Allocate(int fd, std::uint64_t bytes) = 0;
  // What was written is on the device, the length of the file included.
  virtual int Sync(int fd) = 0;
  virtual int Rename(const std::string& from, const std::string& to) = 0;
  virtual int Remove(const std::string& path) = 0;
  // The names in a directory are on the device.
  virtual int SyncDirectory(const std::string& path) = 0;
  // That may be written to the file system of a directory.
  virtual std::int64_t FreeBytes(const std::string& directory) = 0;

  // Called for each read that an io_uring is given, and for each that it has ended, with its
  // result, before anybody looks at it: the decorator's chance. Returns the result to go on with.
  virtual void ReadBegins() {}
  virtual int ReadEnded(int fd, std::uint64_t offset, std::span<std::byte> data, int result) {
    static_cast<void>(fd), static_cast<void>(offset), static_cast<void>(data);
    return result;
  }
};

}  // namespace engram::poolserver::nvme
