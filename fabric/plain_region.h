// Landing memory of fabrics that write it with plain stores: a registration that only remembers.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "fabric/fabric.h"

namespace engram::fabric {

class PlainRegion final : public MemoryRegion {
 public:
  // InvalidArgument: the memory is not host memory.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Make(std::span<std::byte> bytes,
                                                            MemoryKind kind) {
    if (kind != MemoryKind{}) {
      return absl::InvalidArgumentError(
          "this fabric lands reads in host memory only; stage them there");
    }
    return std::make_unique<PlainRegion>(bytes);
  }
  explicit PlainRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  const std::span<std::byte> bytes_;
};

}  // namespace engram::fabric
