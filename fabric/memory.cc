#include "fabric/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <numa.h>
#include <numaif.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric/dax_device.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace engram::fabric {
namespace {

constexpr std::uint64_t kHuge = static_cast<std::uint64_t>(PageSize::k2MiB);
constexpr std::uint64_t kReserve = std::uint64_t{64} << 20;  // left to everybody else

std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::string Size(std::uint64_t bytes) {
  constexpr std::pair<std::uint64_t, const char*> kUnits[] = {
      {std::uint64_t{1} << 30, "GiB"}, {std::uint64_t{1} << 20, "MiB"}, {1 << 10, "KiB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit && bytes % unit == 0) return absl::StrCat(bytes / unit, " ", name);
  }
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= 10 * unit) return absl::StrCat(bytes / unit, " ", name);
  }
  return absl::StrCat(bytes, " B");
}

std::uint64_t ReadNumber(const std::string& path) {
  std::uint64_t value = 0;
  std::ifstream(path) >> value;
  return value;
}

// A line "name: value kB" of /proc/meminfo or of a node's meminfo, in bytes; 0 when absent.
std::uint64_t MemInfo(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(name + ":");
    if (at == std::string::npos) continue;
    return std::strtoull(line.c_str() + at + name.size() + 1, nullptr, 10) << 10;
  }
  return 0;
}

// What may still be taken without waking the OOM killer: the machine's estimate, the node's free
// and cached memory (slabs are among its files, too, and cannot be dropped), and the cgroup's
// limit.
std::uint64_t AvailableMemory(int numa_node) {
  std::uint64_t available = MemInfo("/proc/meminfo", "MemAvailable");
  if (numa_node >= 0) {
    const std::string node = absl::StrCat("/sys/devices/system/node/node", numa_node, "/meminfo");
    const std::uint64_t files = MemInfo(node, "FilePages"), shared = MemInfo(node, "Shmem");
    available =
        std::min(available, MemInfo(node, "MemFree") + (files > shared ? files - shared : 0));
  }
  const std::uint64_t limit = ReadNumber("/sys/fs/cgroup/memory.max");
  if (limit != 0) {
    const std::uint64_t used = ReadNumber("/sys/fs/cgroup/memory.current");
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available > kReserve ? available - kReserve : 0;
}

struct HugePool {
  std::uint64_t total = 0;
  std::uint64_t free = 0;  // not reserved by anybody either
};

HugePool ReadHugePool(PageSize pages, int numa_node) {
  const std::string folder =
      absl::StrCat("hugepages/hugepages-", static_cast<std::uint64_t>(pages) >> 10, "kB/");
  const std::string all = "/sys/kernel/mm/" + folder;
  const std::uint64_t reserved = ReadNumber(all + "resv_hugepages");
  const std::uint64_t free = ReadNumber(all + "free_hugepages");
  HugePool pool{ReadNumber(all + "nr_hugepages"), free > reserved ? free - reserved : 0};
  if (numa_node >= 0) {
    const std::string node = absl::StrCat("/sys/devices/system/node/node", numa_node, "/", folder);
    pool.total = ReadNumber(node + "nr_hugepages");
    pool.free = std::min(pool.free, ReadNumber(node + "free_hugepages"));
  }
  return pool;
}

absl::Status NoHugePages(PageSize pages, std::uint64_t bytes, int numa_node) {
  const auto page = static_cast<std::uint64_t>(pages);
  const HugePool pool = ReadHugePool(pages, numa_node);
  const std::string where = numa_node >= 0 ? absl::StrCat(" of node ", numa_node) : "";
  const std::uint64_t more = bytes / page + (pool.total - std::min(pool.total, pool.free));
  const std::string next =
      pages == PageSize::k2MiB
          ? absl::StrCat("sysctl vm.nr_hugepages=", more)
          : absl::StrCat("echo ", more,
                         " > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages");
  return absl::ResourceExhaustedError(absl::StrCat(Size(page), " wanted: ", pool.free, " free of ",
                                                   pool.total, where, ", ", bytes / page,
                                                   " needed; ", next));
}

// A mapping of `bytes` whose address is a multiple of `alignment`: reserve more, keep the middle.
// Returns nullptr with errno set.
std::byte* MapAligned(std::uint64_t bytes, std::uint64_t alignment, int protection, int flags,
                      int fd) {
  void* const reserved = mmap(nullptr, bytes + alignment, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  std::byte* const start = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  std::byte* const aligned = start + (RoundUp(address, alignment) - address);
  void* const mapped = mmap(aligned, bytes, protection, flags | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(reserved, bytes + alignment);
    errno = error;
    return nullptr;
  }
  if (aligned > start) munmap(start, static_cast<std::size_t>(aligned - start));
  std::byte* const end = start + bytes + alignment;
  if (end > aligned + bytes) {
    munmap(aligned + bytes, static_cast<std::size_t>(end - (aligned + bytes)));
  }
  return static_cast<std::byte*>(mapped);
}

absl::Status CheckNode(int node) {
  if (node < 0 || (numa_available() >= 0 && node <= numa_max_node() &&
                   numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node)))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "NUMA node ", node, " does not exist or has no memory; this machine has nodes 0 to ",
      numa_available() < 0 ? 0 : numa_max_node(), " (numactl -H lists them)"));
}

absl::Status BindToNode(std::byte* data, std::uint64_t bytes, int node) {
  if (node < 0) return absl::OkStatus();
  bitmask* const nodes = numa_allocate_nodemask();
  numa_bitmask_setbit(nodes, static_cast<unsigned>(node));
  const long rc = mbind(data, bytes, MPOL_BIND, nodes->maskp, nodes->size + 1, 0);
  const int error = errno;
  numa_free_nodemask(nodes);
  if (rc == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("mbind to NUMA node ", node, " failed: ", strerror(error),
                   "; a container may need the system call mbind allowed"));
}

// The nodes on which a sample of the pages lies.
std::set<int> NodesOf(std::byte* data, std::uint64_t bytes, std::uint64_t page) {
  constexpr std::uint64_t kSamples = 1024;
  const std::uint64_t pages = bytes / page;
  const std::uint64_t step = std::max<std::uint64_t>(1, pages / kSamples);
  std::vector<void*> addresses;
  for (std::uint64_t i = 0; i < pages; i += step) addresses.push_back(data + i * page);
  std::vector<int> nodes(addresses.size(), -1);
  std::set<int> found;
  if (move_pages(0, addresses.size(), addresses.data(), nullptr, nodes.data(), 0) != 0) {
    return found;
  }
  for (int node : nodes) {
    if (node >= 0) found.insert(node);
  }
  return found;
}

// How much of a shared-memory mapping lies on 2 MiB pages by the kernel's own choice.
std::uint64_t TransparentHugeBytes(const std::byte* data) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string start = absl::StrCat(absl::Hex(reinterpret_cast<std::uintptr_t>(data)), "-");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (!inside) {
      inside = line.compare(0, start.size(), start) == 0;
    } else if (line.compare(0, 15, "ShmemPmdMapped:") == 0) {
      return std::strtoull(line.c_str() + 15, nullptr, 10) << 10;
    }
  }
  return 0;
}

std::string MemlockLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : Size(limit.rlim_cur);
}

// A slab in the making: whatever is not released is undone.
struct Draft {
  int fd = -1;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::string notes;

  Draft() = default;
  Draft(Draft&& other) noexcept
      : fd(std::exchange(other.fd, -1)),
        data(std::exchange(other.data, nullptr)),
        bytes(other.bytes),
        notes(std::move(other.notes)) {}
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    if (data != nullptr) munmap(data, bytes);
    if (fd >= 0) close(fd);
  }
};

// 4 KiB pages come from the memory that is free: more than that would wake the out-of-memory
// killer, and what the kernel answers to such a size differs from machine to machine.
absl::Status CheckAvailable(std::uint64_t bytes, int numa_node) {
  const std::uint64_t available = AvailableMemory(numa_node);
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(Size(bytes), " wanted, ", Size(available), " of memory available",
                   numa_node >= 0 ? absl::StrCat(" on node ", numa_node) : "",
                   "; ask for less memory, or raise the memory limit of the container"));
}

absl::Status OpenMemfd(const SlabOptions& options, PageSize pages, Draft* draft) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (pages == PageSize::k2MiB) flags |= MFD_HUGETLB | MFD_HUGE_2MB;
  if (pages == PageSize::k1GiB) flags |= MFD_HUGETLB | MFD_HUGE_1GB;
  const auto page = static_cast<std::uint64_t>(pages);
  draft->bytes = RoundUp(options.bytes, page);
  if (pages == PageSize::k4KiB) {
    if (auto status = CheckAvailable(draft->bytes, options.numa_node); !status.ok()) return status;
  } else if (ReadHugePool(pages, options.numa_node).free < draft->bytes / page) {
    return NoHugePages(pages, draft->bytes, options.numa_node);
  }
  draft->fd = memfd_create(options.name.c_str(), flags);
  if (draft->fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memfd_create(\"", options.name, "\") on ",
                                                     Size(page), " pages: ", strerror(errno)));
  }
  if (ftruncate(draft->fd, static_cast<off_t>(draft->bytes)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memfd of ", Size(draft->bytes), ": ", strerror(errno)));
  }
  draft->data = MapAligned(draft->bytes, std::max(page, kHuge), PROT_READ | PROT_WRITE, MAP_SHARED,
                           draft->fd);
  if (draft->data != nullptr) return absl::OkStatus();
  const int error = errno;
  if (pages != PageSize::k4KiB) return NoHugePages(pages, draft->bytes, options.numa_node);
  return absl::ResourceExhaustedError(
      absl::StrCat("mmap of ", Size(draft->bytes), ": ", strerror(error), "; see ulimit -v"));
}

// A huge page that is made while nearly nothing is there costs no copy: half the time of populating
// first. The kernel tries only where one page is present.
void MakeHugeWhileEmpty(const Draft& draft) {
  for (std::uint64_t at = 0; at + kHuge <= draft.bytes; at += kHuge) {
    *static_cast<volatile std::byte*>(draft.data + at) = std::byte{0};
    if (madvise(draft.data + at, kHuge, MADV_COLLAPSE) != 0) return;
  }
}

// Takes every page now: later there is neither a page fault nor a SIGBUS.
absl::Status Populate(const Draft& draft, PageSize pages, int numa_node) {
  if (pages == PageSize::k4KiB) {
    madvise(draft.data, draft.bytes, MADV_HUGEPAGE);
    MakeHugeWhileEmpty(draft);
  }
  if (madvise(draft.data, draft.bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno == EINVAL && fallocate(draft.fd, 0, 0, static_cast<off_t>(draft.bytes)) == 0) {
    return absl::OkStatus();  // kernels before 5.14
  }
  const int error = errno;
  if (pages != PageSize::k4KiB) return NoHugePages(pages, draft.bytes, numa_node);
  return absl::ResourceExhaustedError(
      absl::StrCat("populating ", Size(draft.bytes), ": ", strerror(error), "; ",
                   Size(AvailableMemory(numa_node)), " of memory available"));
}

// 4 KiB pages only: ask the kernel for huge pages of its own, keep the slab from being swapped, and
// say what came of both.
void ImproveSmallPages(Draft* draft) {
  std::uint64_t huge = TransparentHugeBytes(draft->data);
  if (huge < draft->bytes / kHuge * kHuge) {
    for (std::uint64_t at = 0; at + kHuge <= draft->bytes; at += kHuge) {
      if (madvise(draft->data + at, kHuge, MADV_COLLAPSE) != 0) break;
    }
    huge = TransparentHugeBytes(draft->data);
  }
  if (huge > 0)
    absl::StrAppend(&draft->notes, ", ", Size(huge), " of it on transparent huge pages");
  if (mlock(draft->data, draft->bytes) != 0) {
    absl::StrAppend(&draft->notes, ", may be swapped (memlock limit ", MemlockLimit(),
                    "; raise LimitMEMLOCK)");
  }
}

absl::Status VerifyNode(const SlabOptions& options, PageSize pages, Draft* draft) {
  const std::set<int> nodes = NodesOf(draft->data, draft->bytes, static_cast<std::uint64_t>(pages));
  if (options.numa_node >= 0 && nodes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("where memory bound to NUMA node ", options.numa_node,
                     " lies cannot be seen: the system call move_pages was refused; allow it in "
                     "the container's seccomp profile"));
  }
  if (options.numa_node >= 0 && nodes != std::set<int>{options.numa_node}) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory bound to NUMA node ", options.numa_node, " landed on ",
                     absl::StrJoin(nodes, ","), "; node ", options.numa_node, " is full"));
  }
  if (nodes.size() == 1) absl::StrAppend(&draft->notes, ", node ", *nodes.begin());
  if (nodes.size() > 1) absl::StrAppend(&draft->notes, ", nodes ", absl::StrJoin(nodes, ","));
  return absl::OkStatus();
}

absl::StatusOr<Draft> Make(const SlabOptions& options, PageSize pages) {
  if (auto status = CheckNode(options.numa_node); !status.ok()) return status;
  Draft draft;
  if (auto status = OpenMemfd(options, pages, &draft); !status.ok()) return status;
  if (auto status = BindToNode(draft.data, draft.bytes, options.numa_node); !status.ok()) {
    return status;
  }
  if (auto status = Populate(draft, pages, options.numa_node); !status.ok()) return status;
  if (auto status = VerifyNode(options, pages, &draft); !status.ok()) return status;
  if (pages == PageSize::k4KiB) ImproveSmallPages(&draft);
  if (fcntl(draft.fd, F_ADD_SEALS, kSlabSeals) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("sealing a memfd on ", Size(static_cast<std::uint64_t>(pages)),
                     " pages failed: ", strerror(errno), "; Linux 5.16 or later is needed"));
  }
  return draft;
}

}  // namespace

std::byte* MapSharedReadOnly(int fd, std::uint64_t bytes, std::uint64_t page) {
  return MapAligned(bytes, std::max(page, kHuge), PROT_READ, MAP_SHARED | MAP_POPULATE, fd);
}

absl::StatusOr<std::uint64_t> NumaNodeBytes(int node) {
  if (absl::Status ok = CheckNode(node); !ok.ok()) return ok;
  return MemInfo(absl::StrCat("/sys/devices/system/node/node", node, "/meminfo"), "MemTotal");
}

absl::StatusOr<std::unique_ptr<Slab>> Slab::Create(const SlabOptions& options) {
  if (options.bytes == 0 || options.bytes > (std::uint64_t{1} << 46)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab of ", options.bytes, " bytes; use 1 byte to 64 TiB"));
  }
  std::vector<std::string> refused;
  for (PageSize pages : {PageSize::k1GiB, PageSize::k2MiB, PageSize::k4KiB}) {
    if (pages > options.pages) continue;
    absl::StatusOr<Draft> draft = Make(options, pages);
    if (draft.ok()) {
      std::unique_ptr<Slab> slab(new Slab);
      slab->fd_ = std::exchange(draft->fd, -1);
      slab->data_ = std::exchange(draft->data, nullptr);
      slab->bytes_ = draft->bytes;
      slab->pages_ = pages;
      slab->granted_ = absl::StrCat(
          Size(draft->bytes), " on ", Size(static_cast<std::uint64_t>(pages)), " pages",
          draft->notes,
          refused.empty() ? "" : absl::StrCat(" (", absl::StrJoin(refused, "; "), ")"));
      return slab;
    }
    refused.emplace_back(draft.status().message());
    if (!absl::IsResourceExhausted(draft.status())) return draft.status();
    if (!options.allow_smaller_pages) break;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "slab \"", options.name, "\" of ", Size(options.bytes), ": ", absl::StrJoin(refused, "; ")));
}

absl::StatusOr<std::unique_ptr<Slab>> Slab::OnDevice(std::shared_ptr<DaxDevice> device,
                                                     std::uint64_t bytes) {
  const auto offset = device->Take(bytes);
  if (!offset.ok()) return offset.status();
  const DaxDescription& on = device->description();
  std::unique_ptr<Slab> slab(new Slab);
  slab->data_ = device->data() + *offset;
  slab->bytes_ = device->Rounded(bytes);
  for (PageSize pages : {PageSize::k2MiB, PageSize::k1GiB}) {
    if (on.alignment >= static_cast<std::uint64_t>(pages)) slab->pages_ = pages;
  }
  slab->granted_ = absl::StrCat(Size(slab->bytes_), " of ", on.path,
                                on.numa_node >= 0 ? absl::StrCat(", node ", on.numa_node) : "");
  slab->device_ = std::move(device);
  return slab;
}

Slab::~Slab() {
  if (device_ != nullptr) {
    device_->Give(static_cast<std::uint64_t>(data_ - device_->data()), bytes_);
    return;
  }
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<HostBuffer> HostBuffer::Create(std::uint64_t bytes) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  const std::uint64_t available = AvailableMemory(-1);
  if (bytes > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat("buffer of ", Size(bytes), ": ", Size(available), " of memory available"));
  }
  // Small buffers stay off huge pages: a 2 MiB page for 4 KiB of staging would be waste.
  const std::uint64_t unit = bytes >= kHuge ? kHuge : static_cast<std::uint64_t>(PageSize::k4KiB);
  const std::uint64_t rounded = RoundUp(bytes, unit);
  std::byte* const data =
      MapAligned(rounded, unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("buffer of ", Size(bytes), ": ", strerror(errno)));
  }
  if (unit == kHuge) madvise(data, rounded, MADV_HUGEPAGE);
  madvise(data, rounded, MADV_POPULATE_WRITE);  // best effort: without it the first use faults
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  buffer.mapped_bytes_ = rounded;
  return buffer;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

std::string DescribeMemlock() { return "memlock is " + MemlockLimit(); }

}  // namespace engram::fabric
