// What lies at the start of a DAX device that a pool node owns: who owns it, since which start, and
// which replicas can be read where. docs/shared-cxl.md is the specification; numbers are
// little-endian.
//
//   0       superblock, two slots of 4 KiB: the valid one with the larger sequence is in force, so
//           that an update that is torn leaves the one before it
//   8 KiB   the beat: grows about once a second while the owner lives
//   12 KiB  directory: one line of 64 bytes a replica
//   then    the replicas, from data_offset
//
// Pure functions over bytes: no mapping, no cache maintenance. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/ids.h"

namespace engram::fabric::dax {

// Made when a device is first used; follows it to whatever name and host it is attached.
using DeviceUuid = Bits128<struct DeviceUuidTag>;

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint64_t kSlotBytes = 4096;
inline constexpr std::uint64_t kBeatOffset = 2 * kSlotBytes;
inline constexpr std::uint64_t kDirectoryOffset = 3 * kSlotBytes;
inline constexpr std::uint64_t kExtentBytes = 64;

struct Superblock {
  DeviceUuid device;
  std::uint64_t sequence = 0;  // grows with each update
  NodeId owner;
  Incarnation incarnation;  // 0: not issued yet
  std::uint64_t nonce = 0;  // random at each claim; 0: the owner has ended
  // The longest lease that readers may still hold of this owner or one before; 0: none holds any.
  Duration lease{};
  std::uint64_t device_bytes = 0;
  std::uint64_t directory_entries = 0;
  std::uint64_t data_offset = 0;

  // "node-a@7", what --take-over-device wants.
  std::string Holder() const;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};

// The directory and the place of the replicas on a device of this size, both slots' fields but
// nothing else. InvalidArgument: the device is too small.
absl::StatusOr<Superblock> LayOutDevice(std::uint64_t device_bytes, std::uint64_t alignment);

// A slot as it is stored. REQUIRES: the owner's name has at most 253 characters.
std::array<std::byte, kSlotBytes> EncodeSuperblock(const Superblock& superblock);

// What is in force among the two slots; nothing when both are all zeros.
// FailedPrecondition: another version of the format, or not one of ours. DataLoss: damaged.
absl::StatusOr<std::optional<Superblock>> DecodeSuperblock(std::span<const std::byte> slots);

// One replica that can be read.
struct Extent {
  std::uint64_t key = 0;     // of the grant; its line is number key % directory_entries
  std::uint64_t offset = 0;  // on the device
  std::uint64_t bytes = 0;
  ShardKey shard;
  std::uint64_t nonce = 0;  // of the claim under which it was published
  friend bool operator==(const Extent&, const Extent&) = default;
};
std::array<std::byte, kExtentBytes> EncodeExtent(const Extent& extent);
// Nothing when the line is free, torn or damaged.
std::optional<Extent> DecodeExtent(std::span<const std::byte, kExtentBytes> line);

// PathAddress::address of a device, "device:UUID".
std::string FormatDeviceAddress(const DeviceUuid& device);
std::optional<DeviceUuid> ParseDeviceAddress(const std::string& address);

}  // namespace engram::fabric::dax
