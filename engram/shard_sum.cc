#include "engram/shard_sum.h"

#include <openssl/sha.h>

namespace engram {

std::string LittleEndian(std::span<const std::uint32_t> block_crcs) {
  std::string bytes;
  bytes.reserve(block_crcs.size() * 4);
  for (std::uint32_t crc : block_crcs) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
  }
  return bytes;
}

std::uint64_t SumOf(std::span<const std::uint32_t> block_crcs) {
  const std::string bytes = LittleEndian(block_crcs);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum |= std::uint64_t{digest[i]} << (8 * i);
  return sum;
}

}  // namespace engram
