// Rows straight from the NIC into the memory of a GPU (GPUDirect RDMA), and why it is refused
// unless this machine has shown that it works. A NIC's completion says that the bytes have left it,
// not that a kernel which is already running sees them: between the two lies the PCIe bus, and on
// some machines a flush is needed, on some there is none. A row that is seen too early would be the
// row of an older step. So a licence is given only by a test that does what the ring does: a kernel
// waits on a word in host memory while the NIC writes, the client flushes and stores the word, and
// the kernel compares every word it finds; thousands of times, with bytes that never repeat.
// The GPU is behind LandingDevice, so that a CPU can stand in for it. Thread-confined: call from
// the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gpu/pattern.h"
#include "client/gpu/ring.h"
#include "fabric/fabric.h"
#include "fabric/target.h"

namespace engram::client::gpu {

// A GPU as direct landing needs it.
class LandingDevice {
 public:
  struct Facts {
    std::string name;
    bool can_land = false;    // the device and its driver let a NIC write
    bool is_ordered = false;  // a kernel that sees the word sees what the NIC wrote before
    bool can_flush = false;   // Flush makes it so
  };
  virtual ~LandingDevice() = default;
  virtual Facts facts() const = 0;
  virtual fabric::MemoryKind kind() const = 0;
  // What NICs wrote before is seen by kernels that see what is stored after. False: it failed.
  virtual bool Flush() = 0;

  // For the test: memory of the device, alive as long as this object.
  virtual absl::StatusOr<std::span<std::byte>> TestMemory(std::size_t bytes) = 0;
  // In host memory that the device sees; 0 at first. Stored with HostModel.
  virtual Word* round_word() = 0;
  // Starts a kernel that waits until the word reaches `round`, then counts the words of the test
  // memory that are not PatternWord(seed, index).
  virtual absl::Status StartCheck(std::uint64_t seed, Word round) = 0;
  // Its count. DeadlineExceeded: the word never reached the round.
  virtual absl::StatusOr<std::uint64_t> FinishCheck() = 0;
};

// Shows that rows may land in `device`. Only TestDirectLanding makes one. Copyable.
class DirectLicence {
 public:
  LandingDevice& device() const { return *device_; }
  // Between the last completion of a layer and the word that tells of it.
  bool Flush() const { return !needs_flush_ || device_->Flush(); }
  bool needs_flush() const { return needs_flush_; }

 private:
  friend class DirectTest;
  DirectLicence(LandingDevice* device, bool needs_flush)
      : device_(device), needs_flush_(needs_flush) {}
  LandingDevice* device_;
  bool needs_flush_;
};

struct DirectTestOptions {
  fabric::Fabric* fabric = nullptr;  // that rows will be read over
  fabric::Target* target = nullptr;  // of the same transport, in this process
  NodeId node;                       // as the target was opened
  Incarnation incarnation{1};
  LandingDevice* device = nullptr;  // outlives the licence
  std::uint32_t rounds = 2000;
  std::uint32_t rows = 240;  // of 272 bytes, each a read of its own
  std::uint64_t seed = 1;
};

// FailedPrecondition says what this machine lacks, or how many words were stale in which round:
// then nothing may ever land directly here.
absl::StatusOr<DirectLicence> TestDirectLanding(const DirectTestOptions& options);

}  // namespace engram::client::gpu
