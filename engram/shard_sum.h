// What is kept of a shard's block checksums, so that a copy made later can be compared with what
// the table was committed with. Pure: Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace engram {

// The checksums as bytes, little-endian, in order: what content digests are made of.
std::string LittleEndian(std::span<const std::uint32_t> block_crcs);
// The first 8 bytes of their SHA-256, little-endian.
std::uint64_t SumOf(std::span<const std::uint32_t> block_crcs);

}  // namespace engram
