#include "fabric/dax/owned_device.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/check.h"
#include "engram/session.h"

namespace engram::fabric::dax {
namespace {

// Longer than two beats, whatever the lease: an owner that lives is seen.
constexpr Duration kLeastWait = std::chrono::seconds(3);

bool Names(const std::vector<std::string>& holders, const std::string& holder) {
  return std::find(holders.begin(), holders.end(), holder) != holders.end();
}

std::string InHex(std::uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }

}  // namespace

absl::StatusOr<std::shared_ptr<OwnedDevice>> OwnedDevice::Open(const DaxDescription& device,
                                                               const Ownership& wanted,
                                                               const CacheLines& lines) {
  ENGRAM_CHECK(!wanted.owner.name.empty() && wanted.owner.name.size() <= 253);
  auto memory = DaxDevice::Open(device);
  if (!memory.ok()) return memory.status();
  std::shared_ptr<OwnedDevice> out(new OwnedDevice(*std::move(memory), lines));
  out->seen_ = out->LoadHead();
  if (absl::Status judged = out->Judge(wanted); !judged.ok()) {
    return absl::Status(judged.code(), absl::StrCat(device.path, ": ", judged.message()));
  }
  // Replicas start behind the head.
  const auto head = out->memory_->Take(out->data_offset_);
  if (!head.ok()) return head.status();
  return out;
}

absl::Status OwnedDevice::Judge(const Ownership& wanted) {
  auto found = DecodeSuperblock(seen_);
  if (found.ok() && *found && (*found)->device_bytes != memory_->description().bytes) {
    found = absl::FailedPreconditionError(absl::StrCat(
        "its superblock, of node \"", (*found)->owner.name, "\", is that of a device of ",
        (*found)->device_bytes, " bytes, and it has ", memory_->description().bytes));
  }
  if (found.ok() && *found) return JudgeOwner(**found, wanted);
  if (found.ok()) {
    found_ = "blank";
  } else if (Names(wanted.take_over, kUnreadable)) {
    found_ = absl::StrCat("taken over although ", found.status().message());
    // How long its readers may read is not known: as long as ours.
    wait_ = std::max(kLeastWait, wanted.lease + LeaseMargin(wanted.lease));
  } else {
    return absl::Status(found.status().code(),
                        absl::StrCat(found.status().message(),
                                     "; if nobody needs it and no other host uses the device, "
                                     "start with --take-over-device ",
                                     kUnreadable));
  }
  MutexLock lock(&mutex_);
  return LayOut(random_.Bits<DeviceUuidTag>(), wanted);
}

// What the owner's name on the device means for who wants it.
absl::Status OwnedDevice::JudgeOwner(const Superblock& found, const Ownership& wanted) {
  const bool same = found.owner == wanted.owner;
  if (!same && wanted.take_over.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it belongs to node \"", found.owner.name, "\", incarnation ", found.incarnation.value(),
        ", says its superblock; only when that node is stopped and its host fenced, start with "
        "--take-over-device ",
        found.Holder()));
  }
  if (!same && !Names(wanted.take_over, found.Holder())) {
    return absl::FailedPreconditionError(
        absl::StrCat("--take-over-device says ", absl::StrJoin(wanted.take_over, ","),
                     ", but its owner is node \"", found.owner.name, "\", incarnation ",
                     found.incarnation.value(), " (", found.Holder(), "): look again who uses it"));
  }
  found_ = absl::StrCat(same ? "left by " : "taken over from ", found.Holder(),
                        found.nonce == 0 ? ", which ended in order" : "");
  if (found.lease > Duration::zero()) {
    wait_ = std::max(kLeastWait, found.lease + LeaseMargin(found.lease));
  }
  MutexLock lock(&mutex_);
  superblock_.sequence = found.sequence;
  return LayOut(found.device, wanted);
}

absl::Status OwnedDevice::LayOut(const DeviceUuid& uuid, const Ownership& wanted) {
  const DaxDescription& on = memory_->description();
  auto layout = LayOutDevice(on.bytes, on.alignment);
  if (!layout.ok()) return layout.status();
  uuid_ = uuid;
  data_offset_ = layout->data_offset;
  layout->device = uuid;
  layout->sequence = superblock_.sequence;
  layout->owner = wanted.owner;
  layout->lease = wanted.lease;
  superblock_ = *std::move(layout);
  keys_.assign(superblock_.directory_entries, 0);
  return absl::OkStatus();
}

void OwnedDevice::Store(std::uint64_t offset, const void* data, std::uint64_t bytes) {
  memcpy(at(offset), data, bytes);
  lines_.WriteBack(at(offset), bytes);
}

// Both slots and the beat, from memory.
std::vector<std::byte> OwnedDevice::LoadHead() const {
  constexpr std::uint64_t kBytes = kBeatOffset + kExtentBytes;
  lines_.Invalidate(at(0), kBytes);
  return {at(0), at(kBytes)};
}

absl::Status OwnedDevice::StillQuiet() {
  if (LoadHead() == seen_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      memory_->description().path, " (", found_,
      ") was written to meanwhile: that owner, or another new one, lives. Stop it and fence its "
      "host before another process takes the device"));
}

absl::Status OwnedDevice::Claim() {
  if (absl::Status quiet = StillQuiet(); !quiet.ok()) return quiet;
  MutexLock lock(&mutex_);
  const std::uint64_t directory = keys_.size() * kExtentBytes;
  memset(at(kDirectoryOffset), 0, directory);
  lines_.WriteBack(at(kDirectoryOffset), directory);
  while (superblock_.nonce == 0) superblock_.nonce = random_.Next();
  WriteSuperblock();
  claimed_ = true;
  return absl::OkStatus();
}

void OwnedDevice::WriteSuperblock() {
  ++superblock_.sequence;
  const auto slot = EncodeSuperblock(superblock_);
  Store(superblock_.sequence % 2 * kSlotBytes, slot.data(), slot.size());
}

std::uint64_t OwnedDevice::nonce() const {
  MutexLock lock(&mutex_);
  return superblock_.nonce;
}

Duration OwnedDevice::lease() const {
  MutexLock lock(&mutex_);
  return superblock_.lease;
}

absl::Status OwnedDevice::CheckOwned() {
  if (!claimed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(memory_->description().path, " is not claimed"));
  }
  const auto now = DecodeSuperblock(LoadHead());
  if (now.ok() && *now && **now == superblock_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(memory_->description().path, " is no longer this node's: ",
                   !now.ok() ? std::string(now.status().message())
                   : !*now   ? std::string("its superblock was cleared")
                             : absl::StrCat("its superblock names ", (*now)->Holder(), " under ",
                                            InHex((*now)->nonce))));
}

absl::Status OwnedDevice::SetIncarnation(Incarnation incarnation) {
  MutexLock lock(&mutex_);
  if (absl::Status ours = CheckOwned(); !ours.ok()) return ours;
  superblock_.incarnation = incarnation;
  WriteSuperblock();
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> OwnedDevice::Publish(std::uint64_t offset, std::uint64_t bytes,
                                                   const ShardKey& shard) {
  ENGRAM_CHECK(offset >= data_offset_ && offset + bytes <= memory_->description().bytes);
  lines_.WriteBack(at(offset), bytes);  // rows first: whoever sees the line below sees them
  MutexLock lock(&mutex_);
  if (absl::Status ours = CheckOwned(); !ours.ok()) return ours;
  std::size_t line = next_line_, looked = 0;
  for (; looked < keys_.size() && keys_[line] != 0; ++looked) line = (line + 1) % keys_.size();
  if (looked == keys_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the directory of ", memory_->description().path, " has ", keys_.size(),
                     " lines, one a replica, and all are taken; use a larger --shard-bytes"));
  }
  next_line_ = (line + 1) % keys_.size();
  std::uint64_t key = 0;
  while (key == 0) {
    const std::uint64_t random = random_.Next();
    key = random - random % keys_.size();
    key = key > ~std::uint64_t{0} - line ? 0 : key + line;
  }
  const auto entry = EncodeExtent({key, offset, bytes, shard, superblock_.nonce});
  Store(kDirectoryOffset + line * kExtentBytes, entry.data(), entry.size());
  keys_[line] = key;
  return key;
}

void OwnedDevice::Withdraw(std::uint64_t key) {
  MutexLock lock(&mutex_);
  const std::size_t line = key % keys_.size();
  if (key == 0 || keys_[line] != key) return;
  keys_[line] = 0;
  if (!CheckOwned().ok()) return;  // what stands there is another owner's
  const std::array<std::byte, kExtentBytes> free{};
  Store(kDirectoryOffset + line * kExtentBytes, free.data(), free.size());
}

absl::Status OwnedDevice::Beat() {
  MutexLock lock(&mutex_);
  if (absl::Status ours = CheckOwned(); !ours.ok()) return ours;
  const std::uint64_t words[2] = {++beat_, superblock_.nonce};
  Store(kBeatOffset, words, sizeof words);
  return absl::OkStatus();
}

void OwnedDevice::End(bool leases_over) {
  MutexLock lock(&mutex_);
  if (!CheckOwned().ok()) return;
  superblock_.nonce = 0;
  if (leases_over) superblock_.lease = Duration::zero();
  WriteSuperblock();
  claimed_ = false;
}

}  // namespace engram::fabric::dax
