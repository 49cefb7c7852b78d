// Host memory that can be shared with other processes and registered with NICs: memfd slabs on huge
// pages, bound to a NUMA node, fully populated, then sealed so that no reader can write, shrink,
// grow or punch them (ARCHITECTURE section 4, "Mapped memory").
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace engram::fabric {

enum class PageSize : std::uint64_t {
  k4KiB = std::uint64_t{4} << 10,
  k2MiB = std::uint64_t{2} << 20,
  k1GiB = std::uint64_t{1} << 30,
};

// The seals of every slab. A reader refuses to map a descriptor that lacks one of them.
inline constexpr int kSlabSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct SlabOptions {
  std::uint64_t bytes = 0;           // rounded up to whole pages
  PageSize pages = PageSize::k2MiB;  // wanted
  bool allow_smaller_pages =
      true;                     // else ResourceExhausted says how many are free and how to get more
  int numa_node = -1;           // -1: wherever the kernel likes
  std::string name = "engram";  // seen in /proc/PID/maps
};

class DaxDevice;

// One fixed-size memfd, mapped read-write in its owner; or a piece of a DAX device, which cannot be
// sealed and which readers map by themselves (fabric/dax/). Thread-compatible.
class Slab {
 public:
  // Creates, binds, populates and seals. ResourceExhausted names the memory wanted, what is there
  // and the setting to change. Never falls back silently: granted() says what was given.
  static absl::StatusOr<std::unique_ptr<Slab>> Create(const SlabOptions& options);
  // ResourceExhausted: the device has no such piece left.
  static absl::StatusOr<std::unique_ptr<Slab>> OnDevice(std::shared_ptr<DaxDevice> device,
                                                        std::uint64_t bytes);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // -1: on a device
  PageSize pages() const { return pages_; }
  // For people: "512 MiB on 2 MiB pages, node 0", or "... on 4 KiB pages (2 MiB wanted: 0 free,
  // ...)".
  const std::string& granted() const { return granted_; }

 private:
  Slab() = default;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  PageSize pages_ = PageSize::k4KiB;
  std::string granted_;
  std::shared_ptr<DaxDevice> device_;  // null: a memfd
};

// Anonymous memory of the client (staging, destinations), on huge pages where they are to be had.
class HostBuffer {
 public:
  static absl::StatusOr<HostBuffer> Create(std::uint64_t bytes);
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;
};

// Maps `bytes` of `fd` read-only, populated, at an address aligned for its pages of `page` bytes
// and for 2 MiB pages. Returns nullptr with errno set. munmap undoes it.
std::byte* MapSharedReadOnly(int fd, std::uint64_t bytes, std::uint64_t page);

// Memory of a NUMA node. InvalidArgument: there is no such node, or it has no memory.
absl::StatusOr<std::uint64_t> NumaNodeBytes(int node);

// For people: "memlock is 8192 KiB", what registering memory with a NIC may be limited by.
std::string DescribeMemlock();

}  // namespace engram::fabric
