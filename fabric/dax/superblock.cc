#include "fabric/dax/superblock.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/sealed_row.h"

namespace engram::fabric::dax {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are stored as they lie here");

constexpr char kMagic[8] = {'E', 'N', 'G', 'R', 'A', 'M', 'S', 'B'};
constexpr std::size_t kOwnerBytes = 256;
constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastExtents = 64;
constexpr std::string_view kAddressPrefix = "device:";

struct StoredSuperblock {
  char magic[8];
  std::uint32_t version;
  std::uint32_t owner_bytes;
  std::uint8_t device[16];
  std::uint64_t sequence;
  std::uint64_t incarnation;
  std::uint64_t nonce;
  std::uint64_t lease_ns;
  std::uint64_t device_bytes;
  std::uint64_t directory_entries;
  std::uint64_t data_offset;
  char owner[kOwnerBytes];
  std::uint32_t zero;
  std::uint32_t crc;  // CRC32C of all before it
};
static_assert(sizeof(StoredSuperblock) == 352);

struct StoredExtent {
  std::uint64_t key;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint8_t table[16];
  std::uint64_t nonce;
  std::uint32_t shard;
  std::uint32_t zero;
  std::uint32_t zero_too;
  std::uint32_t crc;  // CRC32C of all before it
};
static_assert(sizeof(StoredExtent) == kExtentBytes);

template <class Stored>
std::uint32_t CrcOf(const Stored& stored) {
  return Crc32c(0, &stored, offsetof(Stored, crc));
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool IsSound(const StoredSuperblock& stored) {
  return stored.crc == CrcOf(stored) && stored.owner_bytes < kOwnerBytes &&
         stored.device_bytes > kDirectoryOffset && stored.directory_entries > 0 &&
         stored.directory_entries <= (stored.device_bytes - kDirectoryOffset) / kExtentBytes &&
         stored.data_offset >= kDirectoryOffset + stored.directory_entries * kExtentBytes &&
         stored.data_offset < stored.device_bytes &&
         stored.lease_ns <= static_cast<std::uint64_t>(Duration::max().count());
}

Superblock FromStored(const StoredSuperblock& stored) {
  Superblock out;
  memcpy(out.device.bytes.data(), stored.device, sizeof stored.device);
  out.sequence = stored.sequence;
  out.owner.name.assign(stored.owner, stored.owner_bytes);
  out.incarnation = Incarnation(stored.incarnation);
  out.nonce = stored.nonce;
  out.lease = Duration(static_cast<Duration::rep>(stored.lease_ns));
  out.device_bytes = stored.device_bytes;
  out.directory_entries = stored.directory_entries;
  out.data_offset = stored.data_offset;
  return out;
}

}  // namespace

std::string Superblock::Holder() const {
  return absl::StrCat(owner.name, "@", incarnation.value());
}

absl::StatusOr<Superblock> LayOutDevice(std::uint64_t device_bytes, std::uint64_t alignment) {
  Superblock out;
  out.device_bytes = device_bytes;
  out.directory_entries = std::max(kLeastExtents, device_bytes / kMib);
  const std::uint64_t head = kDirectoryOffset + out.directory_entries * kExtentBytes;
  out.data_offset = (head + alignment - 1) / alignment * alignment;
  if (out.data_offset < device_bytes) return out;
  return absl::InvalidArgumentError(
      absl::StrCat("a device of ", device_bytes, " bytes with an alignment of ", alignment,
                   " has no room for replicas: its superblock takes ", out.data_offset));
}

std::array<std::byte, kSlotBytes> EncodeSuperblock(const Superblock& superblock) {
  ENGRAM_CHECK(superblock.owner.name.size() < kOwnerBytes);
  StoredSuperblock stored{};
  memcpy(stored.magic, kMagic, sizeof kMagic);
  stored.version = kFormatVersion;
  stored.owner_bytes = static_cast<std::uint32_t>(superblock.owner.name.size());
  memcpy(stored.device, superblock.device.bytes.data(), sizeof stored.device);
  stored.sequence = superblock.sequence;
  stored.incarnation = superblock.incarnation.value();
  stored.nonce = superblock.nonce;
  stored.lease_ns = static_cast<std::uint64_t>(superblock.lease.count());
  stored.device_bytes = superblock.device_bytes;
  stored.directory_entries = superblock.directory_entries;
  stored.data_offset = superblock.data_offset;
  memcpy(stored.owner, superblock.owner.name.data(), superblock.owner.name.size());
  stored.crc = CrcOf(stored);
  std::array<std::byte, kSlotBytes> slot{};
  memcpy(slot.data(), &stored, sizeof stored);
  return slot;
}

absl::StatusOr<std::optional<Superblock>> DecodeSuperblock(std::span<const std::byte> slots) {
  ENGRAM_CHECK(slots.size() >= 2 * kSlotBytes);
  std::optional<Superblock> best;
  bool ours = false;
  for (const std::uint64_t at : {std::uint64_t{0}, kSlotBytes}) {
    StoredSuperblock stored;
    memcpy(&stored, slots.data() + at, sizeof stored);
    if (memcmp(stored.magic, kMagic, sizeof kMagic) != 0) continue;
    ours = true;
    if (stored.version != kFormatVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("its superblock has format version ", stored.version,
                       ", and this program knows version ", kFormatVersion));
    }
    if (!IsSound(stored)) continue;
    if (!best || stored.sequence > best->sequence) best = FromStored(stored);
  }
  if (best) return best;
  if (ours) return absl::DataLossError("its superblock is damaged: no checksum is right");
  if (AllZero(slots.first(2 * kSlotBytes))) return std::optional<Superblock>();
  return absl::FailedPreconditionError(
      "it holds something that is not a superblock of a pool node: it may be somebody else's data");
}

std::array<std::byte, kExtentBytes> EncodeExtent(const Extent& extent) {
  StoredExtent stored{};
  stored.key = extent.key;
  stored.offset = extent.offset;
  stored.bytes = extent.bytes;
  memcpy(stored.table, extent.shard.table.bytes.data(), sizeof stored.table);
  stored.nonce = extent.nonce;
  stored.shard = extent.shard.shard.value();
  stored.crc = CrcOf(stored);
  std::array<std::byte, kExtentBytes> line;
  memcpy(line.data(), &stored, sizeof stored);
  return line;
}

std::optional<Extent> DecodeExtent(std::span<const std::byte, kExtentBytes> line) {
  StoredExtent stored;
  memcpy(&stored, line.data(), sizeof stored);
  if (stored.key == 0 || stored.crc != CrcOf(stored)) return std::nullopt;
  Extent out;
  out.key = stored.key;
  out.offset = stored.offset;
  out.bytes = stored.bytes;
  memcpy(out.shard.table.bytes.data(), stored.table, sizeof stored.table);
  out.shard.shard = ShardIndex(stored.shard);
  out.nonce = stored.nonce;
  return out;
}

std::string FormatDeviceAddress(const DeviceUuid& device) {
  return absl::StrCat(std::string(kAddressPrefix), device.Hex());
}

std::optional<DeviceUuid> ParseDeviceAddress(const std::string& address) {
  DeviceUuid device;
  if (address.rfind(kAddressPrefix, 0) != 0 ||
      !DeviceUuid::Parse(std::string_view(address).substr(kAddressPrefix.size()), &device)) {
    return std::nullopt;
  }
  return device;
}

}  // namespace engram::fabric::dax
