// A file in the place of a DAX device, and two hosts that share no cache: what one of them stored
// is seen by the other only when the first wrote it back and the second dropped what it held.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "fabric/dax/cache_lines.h"
#include "fabric/dax_device.h"

namespace engram::fabric::dax {

class StandIn {
 public:
  explicit StandIn(std::uint64_t bytes, std::uint64_t alignment = 4096) {
    std::string pattern = testing::TempDir() + "stand_in.XXXXXX";
    const int fd = mkstemp(pattern.data());
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    close(fd);
    device_ = {pattern, bytes, alignment, -1};
  }
  ~StandIn() { unlink(device_.path.c_str()); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  const DaxDescription& device() const { return device_; }

  // What lies in "memory", past every cache.
  std::vector<std::byte> Load(std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<std::byte> out(bytes);
    const int fd = open(device_.path.c_str(), O_RDONLY);
    EXPECT_EQ(pread(fd, out.data(), bytes, static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes));
    close(fd);
    return out;
  }
  void Store(std::uint64_t offset, const void* data, std::uint64_t bytes) const {
    const int fd = open(device_.path.c_str(), O_WRONLY);
    EXPECT_EQ(pwrite(fd, data, bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
    close(fd);
  }

 private:
  DaxDescription device_;
};

// The caches of a host whose mappings are of `cached`: lines go to, and come from, `memory`.
class HostCache final : public CacheLines {
 public:
  HostCache(const StandIn& cached, const StandIn& memory) : cached_(cached), memory_(memory) {}

  void WriteBack(const std::byte* data, std::uint64_t bytes) const override {
    const auto [offset, length] = Lines(data, bytes);
    memory_.Store(offset, cached_.Load(offset, length).data(), length);
  }
  void Invalidate(const std::byte* data, std::uint64_t bytes) const override {
    const auto [offset, length] = Lines(data, bytes);
    cached_.Store(offset, memory_.Load(offset, length).data(), length);
  }
  std::string_view instructions() const override { return "none"; }

 private:
  // The whole lines around [data, data + bytes), as offsets on the device.
  static std::pair<std::uint64_t, std::uint64_t> Lines(const std::byte* data, std::uint64_t bytes) {
    const std::uint64_t offset = OffsetOf(reinterpret_cast<std::uintptr_t>(data));
    const std::uint64_t start = offset & ~std::uint64_t{63};
    return {start, ((offset + bytes + 63) & ~std::uint64_t{63}) - start};
  }
  static std::uint64_t OffsetOf(std::uintptr_t address) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long start = 0, end = 0, offset = 0;
      sscanf(line.c_str(), "%lx-%lx %*s %lx", &start, &end, &offset);
      if (start <= address && address < end) return address - start + offset;
    }
    ADD_FAILURE() << "not mapped";
    return 0;
  }

  const StandIn& cached_;
  const StandIn& memory_;
};

}  // namespace engram::fabric::dax
