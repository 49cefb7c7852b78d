// The shared memory of a host cache: one file in /dev/shm for each (user, tenant, table), readable
// and writable by that user alone.
//
// Whoever comes first makes it, whoever goes last removes it; everybody in between holds a shared
// lock on it. A segment that a killed process left behind is taken over if it is one of this build
// and whole, else replaced, because nobody uses it. One of another build that is in use is refused.
// It has its full size before anybody maps it. Cutting it short afterwards would need this user, by
// hand; that ends its readers. Thread-compatible.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engram/ids.h"

namespace engram::client {

struct HostSegmentOptions {
  std::string folder = "/dev/shm";
  std::string tenant;
  TableUid table;
  std::uint32_t row_bytes = 0;
  std::uint32_t unit_rows = 1;
  std::uint64_t sets = 0;
  std::uint64_t bytes = 0;  // of the sets and their units
};

class HostSegment {
 public:
  // PermissionDenied: the file is another user's, or others may read it. FailedPrecondition: it is
  // in use by another build or with other sizes, or is not a row cache at all (says which).
  // ResourceExhausted: /dev/shm has no room. Unavailable: somebody holds it half made.
  static absl::StatusOr<std::unique_ptr<HostSegment>> Open(const HostSegmentOptions& options);
  ~HostSegment();
  HostSegment(const HostSegment&) = delete;
  HostSegment& operator=(const HostSegment&) = delete;

  static std::string PathOf(const HostSegmentOptions& options);

  std::byte* data() const { return data_; }  // aligned to 4 KiB, zeros at first
  const std::string& path() const { return path_; }
  // Other than that of any other opening of this segment.
  std::uint32_t owner() const { return owner_; }

 private:
  HostSegment() = default;

  std::string path_;
  int fd_ = -1;
  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  std::uint32_t owner_ = 0;
};

}  // namespace engram::client
