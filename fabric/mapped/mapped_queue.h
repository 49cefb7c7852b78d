// Reads of mapped memory. Submit does the loads itself, so nothing is ever in flight: Abandon has
// nothing to end, and a completion waits only for its Poll.
//
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/mapped/gather.h"

namespace engram::fabric {

class MappedQueue final : public ReadQueue {
 public:
  // `key` is that of every region the fabric imported: it tells a region of this process from one
  // as it was granted. At most `depth` completions wait. REQUIRES: depth > 0.
  MappedQueue(std::uint64_t key, std::size_t depth);

  std::size_t Submit(std::span<const ReadOp> ops) override;
  bool ReadNow(const RowsNow& rows) override;
  std::size_t Poll(std::span<ReadCompletion> out) override;
  int ArmWait() override { return -1; }
  void Abandon(PeerId) override {}
  void Close() override;

 private:
  const Gathering gather_;
  const std::uint64_t key_;
  const std::size_t depth_;
  std::vector<ReadCompletion> ring_;  // a power of two; entries [tail_, head_) wait
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  bool closed_ = false;
};

}  // namespace engram::fabric
