// A DAX device that a pool node owns, although other hosts may have it attached: its superblock,
// the wait for readers of earlier owners, and the directory of what can be read.
//
//   Open      takes the device on this host (flock) and judges its superblock: ours, blank, or
//             somebody else's, which is refused unless the operator says whom it is taken from
//   wait()    how long nothing may be written: readers of an earlier owner, or of an earlier start,
//             may read until their leases have run out. StillQuiet during that time finds out
//             whether that owner lives after all
//   Claim     writes the superblock; then replicas may be placed
//   Publish   a replica is there: its lines are written back, then its line of the directory
//
// Two hosts are kept apart by the superblock alone, which is no lock: an owner looks once a second
// (Beat) and before it publishes whether the device is still its own. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/dax/cache_lines.h"
#include "fabric/dax/superblock.h"
#include "fabric/dax_device.h"

namespace engram::fabric::dax {

// Who wants a device, and on which terms.
struct Ownership {
  NodeId owner;
  Duration lease{};  // the longest that readers of this owner will hold
  // Whom it may be taken from: "OWNER@INCARNATION" as the superblock has it, or kUnreadable. The
  // operator has fenced them.
  std::vector<std::string> take_over = {};
};

// What to call an owner whose superblock is damaged, of another version, or not one of ours.
inline constexpr char kUnreadable[] = "unreadable";

class OwnedDevice {
 public:
  // FailedPrecondition: another process of this host has the device, or its superblock names
  // another owner (the message says which and what to do). DataLoss: its superblock is damaged.
  static absl::StatusOr<std::shared_ptr<OwnedDevice>> Open(
      const DaxDescription& device, const Ownership& wanted,
      const CacheLines& lines = CacheLines::OfThisProcessor());

  const std::shared_ptr<DaxDevice>& memory() const { return memory_; }
  const DeviceUuid& uuid() const { return uuid_; }
  // Bytes for replicas.
  std::uint64_t capacity() const { return memory_->description().bytes - data_offset_; }
  // What was found on it, for people: "blank", "left by node-a@7", ...
  const std::string& found() const { return found_; }

  // From Open until Claim. Zero: nobody can hold a lease.
  Duration wait() const { return wait_; }
  // Aborted: somebody wrote to its head since Open, so the earlier owner lives.
  absl::Status StillQuiet();

  // Makes it ours and its directory empty. REQUIRES: wait() has passed since Open.
  absl::Status Claim();
  std::uint64_t nonce() const;
  Duration lease() const;  // as the superblock has it
  // Aborted, here and below: another process claimed the device since; nothing was written.
  absl::Status SetIncarnation(Incarnation incarnation);
  // Writes the replica's lines back, then tells of it. Returns its key: random, never 0.
  absl::StatusOr<std::uint64_t> Publish(std::uint64_t offset, std::uint64_t bytes,
                                        const ShardKey& shard);
  // Unknown keys are ignored.
  void Withdraw(std::uint64_t key);
  absl::Status Beat();
  // The owner ends in order. `leases_over`: no reader holds a lease, so the next one need not wait.
  void End(bool leases_over);

 private:
  OwnedDevice(std::shared_ptr<DaxDevice> memory, const CacheLines& lines)
      : memory_(std::move(memory)), lines_(lines) {}
  absl::Status Judge(const Ownership& wanted);
  absl::Status JudgeOwner(const Superblock& found, const Ownership& wanted);
  absl::Status LayOut(const DeviceUuid& uuid, const Ownership& wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::byte* at(std::uint64_t offset) const { return memory_->data() + offset; }
  void Store(std::uint64_t offset, const void* data, std::uint64_t bytes);
  std::vector<std::byte> LoadHead() const;
  absl::Status CheckOwned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteSuperblock() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<DaxDevice> memory_;
  const CacheLines& lines_;
  DeviceUuid uuid_;
  std::uint64_t data_offset_ = 0;
  std::string found_;
  Duration wait_{};
  std::vector<std::byte> seen_;  // the head as it was at Open

  mutable Mutex mutex_;
  SystemRandom random_ ABSL_GUARDED_BY(mutex_);
  Superblock superblock_ ABSL_GUARDED_BY(mutex_);  // as last written, once claimed
  bool claimed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t beat_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> keys_ ABSL_GUARDED_BY(mutex_);  // by line of the directory; 0: free
  std::size_t next_line_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace engram::fabric::dax
