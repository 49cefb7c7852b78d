#include "client/destination.h"

namespace engram::client {

absl::StatusOr<std::unique_ptr<Destination>> Destination::Register(
    std::span<fabric::Fabric* const> fabrics, std::span<std::byte> memory) {
  std::unique_ptr<Destination> out(new Destination());
  out->memory_ = memory;
  for (fabric::Fabric* fabric : fabrics) {
    std::unique_ptr<fabric::MemoryRegion> region;
    if (fabric->info().needs_registration) {
      auto registered = fabric->Register(memory, fabric::MemoryKind{});
      if (!registered.ok()) return registered.status();
      region = *std::move(registered);
    }
    out->regions_.push_back(std::move(region));
  }
  return out;
}

}  // namespace engram::client
