// Memory of the caller, registered with every fabric that can only land in registered memory. Other
// fabrics land anywhere. Registering is slow: do it once per buffer, not per read.
//
// Immutable: Thread-safe. RAII: destroy it only when no read targets it any more.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric/fabric.h"

namespace engram::client {

class Destination {
 public:
  // `fabrics` is the reader's list. `memory` must outlive the result.
  static absl::StatusOr<std::unique_ptr<Destination>> Register(
      std::span<fabric::Fabric* const> fabrics, std::span<std::byte> memory);

  std::span<std::byte> bytes() const { return memory_; }
  bool Covers(const std::byte* data, std::size_t bytes) const {
    return data >= memory_.data() && bytes <= memory_.size() &&
           static_cast<std::size_t>(data - memory_.data()) <= memory_.size() - bytes;
  }
  // Null where the fabric needs no registration.
  const fabric::MemoryRegion* region(std::size_t fabric) const { return regions_[fabric].get(); }

 private:
  Destination() = default;
  std::span<std::byte> memory_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> regions_;
};

}  // namespace engram::client
