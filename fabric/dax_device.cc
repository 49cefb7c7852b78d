#include "fabric/dax_device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace engram::fabric {
namespace {

constexpr std::uint64_t kSmallPage = 4096;

bool ReadAttribute(const std::string& path, std::int64_t* value) {
  std::ifstream in(path);
  return static_cast<bool>(in >> *value);
}

constexpr std::string_view kFilePrefix = "file:";

absl::StatusOr<DaxDescription> DescribeFile(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    return absl::NotFoundError(absl::StrCat(std::string(kFilePrefix), path, ": ", strerror(errno)));
  }
  if (!S_ISREG(file.st_mode) || file.st_size % kSmallPage != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(kFilePrefix), path,
                     " is not a file of whole pages of 4 KiB that could stand "
                     "for a device"));
  }
  return DaxDescription{path, static_cast<std::uint64_t>(file.st_size), kSmallPage, -1};
}

}  // namespace

absl::StatusOr<DaxDescription> DescribeDax(const std::string& path, const std::string& root) {
  if (path.rfind(kFilePrefix, 0) == 0) return DescribeFile(path.substr(kFilePrefix.size()));
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string folder = absl::StrCat(root, "/sys/bus/dax/devices/", name, "/");
  DaxDescription device{path, 0, 0, -1};
  std::int64_t bytes = 0, alignment = 0, node = -1;
  struct stat file {};
  if (stat((root + path).c_str(), &file) != 0) {
    const bool known = ReadAttribute(folder + "size", &bytes);
    return absl::NotFoundError(absl::StrCat(
        path, ": ", strerror(errno),
        known ? absl::StrCat("; the device exists in another mode: daxctl reconfigure-device "
                             "--mode=devdax ",
                             name)
              : std::string("; `daxctl list` and /sys/bus/dax/devices name the DAX devices")));
  }
  if (!ReadAttribute(folder + "size", &bytes) || !ReadAttribute(folder + "align", &alignment)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a DAX device: /sys/bus/dax/devices/", name,
                     " is missing; `daxctl list` names those that there are"));
  }
  ReadAttribute(folder + "target_node", &node);
  device.bytes = static_cast<std::uint64_t>(bytes);
  device.alignment = static_cast<std::uint64_t>(alignment);
  device.numa_node = static_cast<int>(node);
  return device;
}

absl::StatusOr<std::shared_ptr<DaxDevice>> DaxDevice::Open(const DaxDescription& device) {
  if (device.alignment < kSmallPage || (device.alignment & (device.alignment - 1)) != 0 ||
      device.bytes == 0 || device.bytes % device.alignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        device.path, " has ", device.bytes, " bytes and an alignment of ", device.alignment,
        ": wanted are whole pages of 4 KiB, 2 MiB or 1 GiB; make it "
        "anew with ndctl or daxctl --align"));
  }
  std::shared_ptr<DaxDevice> out(new DaxDevice);
  out->device_ = device;
  out->fd_ = open(device.path.c_str(), O_RDWR | O_CLOEXEC);
  if (out->fd_ < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", device.path,
                                                   "; its file mode is its only access control"));
  }
  if (flock(out->fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        device.path, " is in use by another process of this host (", strerror(errno),
        "): `lslocks` and `fuser ", device.path, "` name it; one pool node owns a device"));
  }
  void* const mapped = mmap(nullptr, device.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd_, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map the ", device.bytes, " bytes of ",
                                                     device.path, ": ", strerror(errno)));
  }
  out->data_ = static_cast<std::byte*>(mapped);
  MutexLock lock(&out->mutex_);
  out->free_[0] = device.bytes;
  return out;
}

DaxDevice::~DaxDevice() {
  if (data_ != nullptr) munmap(data_, device_.bytes);
  if (fd_ >= 0) close(fd_);
}

std::uint64_t DaxDevice::Rounded(std::uint64_t bytes) const {
  return (bytes + device_.alignment - 1) / device_.alignment * device_.alignment;
}

absl::StatusOr<std::uint64_t> DaxDevice::Take(std::uint64_t bytes) {
  const std::uint64_t wanted = Rounded(bytes);
  MutexLock lock(&mutex_);
  std::uint64_t left = 0, largest = 0;
  for (const auto& [offset, free] : free_) {
    left += free;
    largest = std::max(largest, free);
    if (free < wanted || wanted == 0) continue;
    const std::uint64_t at = offset, rest = free - wanted;
    free_.erase(at);
    if (rest > 0) free_[at + wanted] = rest;
    return at;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(device_.path, " has no piece of ", wanted, " bytes: ", left, " of ",
                   device_.bytes, " bytes are free, the largest piece has ", largest));
}

void DaxDevice::Give(std::uint64_t offset, std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  auto at = free_.emplace(offset, Rounded(bytes)).first;
  auto next = std::next(at);
  if (next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

}  // namespace engram::fabric
