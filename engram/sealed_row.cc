#include "engram/sealed_row.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define ENGRAM_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define ENGRAM_CRC_TARGET __attribute__((target("+crc")))
#endif

namespace engram {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed
constexpr int kChains = 4;

// tables[k][b]: CRC of byte b followed by k zero bytes, so that 8 bytes take 8 lookups.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

std::uint64_t LoadWord(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// All functions below work on the raw CRC register; the public Crc32c inverts before and after.
std::uint32_t PortableWord(std::uint32_t crc, std::uint64_t word) {
  word ^= crc;
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out ^= kTables[7 - i][(word >> (8 * i)) & 255];
  return out;
}

std::uint32_t PortableExtend(std::uint32_t crc, const std::byte* at, std::size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) crc = PortableWord(crc, LoadWord(at));
  for (; bytes > 0; ++at, --bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(*at)) & 255];
  }
  return crc;
}

std::uint64_t MakeSeal(RowId row, std::uint32_t register_value) {
  return (row.value() << 32) | static_cast<std::uint32_t>(~register_value);
}

#ifdef ENGRAM_CRC_TARGET

#if defined(__x86_64__)
ENGRAM_CRC_TARGET inline std::uint32_t HardWord(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
ENGRAM_CRC_TARGET inline std::uint32_t HardByte(std::uint32_t crc, std::uint8_t byte) {
  return _mm_crc32_u8(crc, byte);
}
bool HasHardCrc() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
ENGRAM_CRC_TARGET inline std::uint32_t HardWord(std::uint32_t crc, std::uint64_t word) {
  return __crc32cd(crc, word);
}
ENGRAM_CRC_TARGET inline std::uint32_t HardByte(std::uint32_t crc, std::uint8_t byte) {
  return __crc32cb(crc, byte);
}
bool HasHardCrc() { return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; }  // HWCAP_CRC32
#endif

ENGRAM_CRC_TARGET std::uint32_t HardExtend(std::uint32_t crc, const std::byte* at,
                                           std::size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) crc = HardWord(crc, LoadWord(at));
  for (; bytes > 0; ++at, --bytes) crc = HardByte(crc, static_cast<std::uint8_t>(*at));
  return crc;
}

// Registers of four rows, each over its id and its bytes. The instruction takes 3 cycles but one
// can start each cycle: four independent rows fill the gap. `kRowBytes` 0: any width.
template <std::uint32_t kRowBytes>
ENGRAM_CRC_TARGET inline void HardRows(std::uint32_t table_crc, const RowId* ids,
                                       const std::byte* const* rows, std::uint32_t bytes,
                                       std::uint32_t* crcs) {
  if constexpr (kRowBytes != 0) bytes = kRowBytes;
  const std::byte *p = rows[0], *q = rows[1], *r = rows[2], *s = rows[3];
  std::uint32_t a = HardWord(table_crc, ids[0].value()), b = HardWord(table_crc, ids[1].value());
  std::uint32_t c = HardWord(table_crc, ids[2].value()), d = HardWord(table_crc, ids[3].value());
  const std::uint32_t whole = bytes & ~7u;
#pragma GCC unroll 48
  for (std::uint32_t at = 0; at < whole; at += 8) {
    a = HardWord(a, LoadWord(p + at));
    b = HardWord(b, LoadWord(q + at));
    c = HardWord(c, LoadWord(r + at));
    d = HardWord(d, LoadWord(s + at));
  }
  crcs[0] = HardExtend(a, p + whole, bytes - whole);
  crcs[1] = HardExtend(b, q + whole, bytes - whole);
  crcs[2] = HardExtend(c, r + whole, bytes - whole);
  crcs[3] = HardExtend(d, s + whole, bytes - whole);
}

// Of ids.size() rows, a multiple of kChains.
template <std::uint32_t kRowBytes>
ENGRAM_CRC_TARGET std::size_t HardCheck(std::uint32_t table_crc, std::span<const RowId> ids,
                                        const std::byte* const* rows, const std::uint64_t* seals,
                                        std::uint32_t bytes) {
  std::size_t failed = 0;
  for (std::size_t at = 0; at < ids.size(); at += kChains) {
    std::uint32_t crcs[kChains];
    HardRows<kRowBytes>(table_crc, ids.data() + at, rows + at, bytes, crcs);
    for (int i = 0; i < kChains; ++i) failed += MakeSeal(ids[at + i], crcs[i]) != seals[at + i];
  }
  return failed;
}

const bool kHard = HasHardCrc();
std::uint32_t Extend(std::uint32_t crc, const std::byte* at, std::size_t bytes) {
  return kHard ? HardExtend(crc, at, bytes) : PortableExtend(crc, at, bytes);
}

#else

std::uint32_t Extend(std::uint32_t crc, const std::byte* at, std::size_t bytes) {
  return PortableExtend(crc, at, bytes);
}
#endif

std::uint32_t ExtendId(std::uint32_t crc, RowId row) {
  const std::uint64_t id = row.value();
  return Extend(crc, reinterpret_cast<const std::byte*>(&id), sizeof id);
}

}  // namespace

std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t bytes) {
  return ~Extend(~crc, static_cast<const std::byte*>(data), bytes);
}

std::uint32_t Crc32cPortable(std::uint32_t crc, const void* data, std::size_t bytes) {
  return ~PortableExtend(~crc, static_cast<const std::byte*>(data), bytes);
}

RowSealer::RowSealer(const TableUid& table, std::uint32_t row_bytes)
    : table_crc_(
          Extend(~0u, reinterpret_cast<const std::byte*>(table.bytes.data()), table.bytes.size())),
      row_bytes_(row_bytes) {}

std::uint64_t RowSealer::Seal(RowId row, const std::byte* row_bytes) const {
  return MakeSeal(row, Extend(ExtendId(table_crc_, row), row_bytes, row_bytes_));
}

std::size_t RowSealer::CheckBatch(std::span<const RowId> ids,
                                  std::span<const std::byte* const> rows,
                                  std::span<const std::uint64_t> seals) const {
  std::size_t failed = 0;
  std::size_t at = 0;
#ifdef ENGRAM_CRC_TARGET
  if (kHard) {
    at = ids.size() / kChains * kChains;
    // 264: the rows of DeepSeek-V4.1.
    const auto check = row_bytes_ == 264 ? HardCheck<264> : HardCheck<0>;
    failed = check(table_crc_, ids.first(at), rows.data(), seals.data(), row_bytes_);
  }
#endif
  for (; at < ids.size(); ++at) failed += !Check(ids[at], rows[at], seals[at]);
  return failed;
}

}  // namespace engram
