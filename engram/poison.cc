#include "engram/poison.h"

#include <array>

namespace engram {
namespace {

// Two bytes, low first, repeated over the plane. An NVFP4 value has no NaN of its own: its element
// is NaN because its block scale is.
std::array<std::byte, 2> Pattern(DType dtype) {
  switch (dtype) {
    case DType::kE4M3: return {std::byte{0x7f}, std::byte{0x7f}};
    case DType::kUE8M0: return {std::byte{0xff}, std::byte{0xff}};
    case DType::kBF16: return {std::byte{0xff}, std::byte{0x7f}};
    case DType::kF8Scale: return {std::byte{0x7f}, std::byte{0x7f}};
    case DType::kNVFP4:
    case DType::kBytes: break;
  }
  return {std::byte{0xff}, std::byte{0xff}};
}

}  // namespace

std::vector<std::byte> PoisonRow(const TableSpec& spec) {
  std::vector<std::byte> row;
  row.reserve(spec.RowBytes());
  for (const Plane& plane : spec.planes) {
    const auto pattern = Pattern(plane.dtype);
    for (std::uint32_t i = 0; i < plane.bytes; ++i) row.push_back(pattern[i % 2]);
  }
  return row;
}

}  // namespace engram
