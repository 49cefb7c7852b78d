// What a failed row looks like: a pattern of its dtype for which every dequantised element is NaN
// (ENGRAM section 7): E4M3 0x7F, UE8M0 0xFF, BF16 0x7FFF, NVFP4 block scale 0x7F, opaque bytes
// 0xFF.
#pragma once

#include <cstddef>
#include <vector>

#include "engram/table_spec.h"

namespace engram {

// One poisoned packed row of `spec`: RowBytes() bytes. Callers copy it; build it once.
std::vector<std::byte> PoisonRow(const TableSpec& spec);

}  // namespace engram
