// Memory of a DAX character device (/dev/dax0.0): CXL-attached or persistent memory that the kernel
// hands out directly, mapped whole into this process and given out in pieces.
//
// The device has one owner at a time: flock on its node refuses a second process of this host.
// Other hosts that have the device attached are kept away by its superblock
// (fabric/dax/owned_device.h). What lies on it outlives the process and is never taken for
// anything: a piece holds garbage until its owner has filled it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/mutex.h"

namespace engram::fabric {

struct DaxDescription {
  std::string path;             // "/dev/dax0.0"
  std::uint64_t bytes = 0;      // of the whole device
  std::uint64_t alignment = 0;  // of a mapping: 4 KiB, 2 MiB or 1 GiB
  int numa_node = -1;           // nearest, or where it would be as system RAM
};

// What the kernel says of a device. InvalidArgument: it is not a DAX device (a file, a block
// device); NotFound: it is not there, or is in system-ram mode, and what to do. `root` is a prefix
// of /sys and /dev: empty on a real machine. "file:PATH" is a file in the place of a device, with
// pages of 4 KiB: everything can be tried out on it, by processes of one host.
absl::StatusOr<DaxDescription> DescribeDax(const std::string& path, const std::string& root = "");

// Thread-safe.
class DaxDevice {
 public:
  // Maps the device for reading and writing. FailedPrecondition: another process has it;
  // InvalidArgument: its size is not a multiple of its alignment.
  static absl::StatusOr<std::shared_ptr<DaxDevice>> Open(const DaxDescription& device);
  ~DaxDevice();
  DaxDevice(const DaxDevice&) = delete;
  DaxDevice& operator=(const DaxDevice&) = delete;

  const DaxDescription& description() const { return device_; }
  std::byte* data() const { return data_; }

  // A piece of `bytes`, rounded up to the alignment: its offset. ResourceExhausted says how much is
  // left in how large pieces.
  absl::StatusOr<std::uint64_t> Take(std::uint64_t bytes);
  // REQUIRES: `offset` was taken with these bytes.
  void Give(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t Rounded(std::uint64_t bytes) const;

 private:
  DaxDevice() = default;

  DaxDescription device_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes
};

}  // namespace engram::fabric
