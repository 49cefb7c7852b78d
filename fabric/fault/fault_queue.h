// The queue of a FaultFabric. Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engram/clock.h"
#include "engram/random.h"
#include "fabric/fabric.h"
#include "fabric/fault/fault_fabric.h"

namespace engram::fabric {

class FaultQueue final : public ReadQueue {
 public:
  // `outer`, `inner_fabric` and `clock` must outlive the queue.
  FaultQueue(const FaultFabric& outer, Fabric& inner_fabric, std::unique_ptr<ReadQueue> inner,
             std::uint32_t depth, std::uint64_t seed, const Clock& clock);
  ~FaultQueue() override { FaultQueue::Close(); }

  std::size_t Submit(std::span<const ReadOp> ops) override;
  std::size_t Poll(std::span<ReadCompletion> out) override;
  int ArmWait() override;
  void Abandon(PeerId peer) override;
  void Close() override;

 private:
  enum class State : std::uint8_t { kFree, kPosted, kDelayed };
  // One read on its way. Its bytes wait in `memory`.
  struct Slot {
    State state = State::kFree;
    ReadStatus status = ReadStatus::kOk;
    bool flip = false;
    bool abandoned = false;
    Instant due;
    ReadOp op;
    std::vector<std::byte> memory;
    std::unique_ptr<MemoryRegion> region;
  };

  bool Chance(std::uint32_t per_million) { return random_.Below(1'000'000) < per_million; }
  // False: the inner fabric does not register memory for its bytes.
  bool Prepare(std::uint32_t slot, const ReadOp& op, const FaultOptions& options);
  void Free(std::uint32_t slot);
  void Delay(std::uint32_t slot, ReadStatus status, Instant due);
  void TakeInnerCompletions();
  void Land(Slot& slot);

  const FaultFabric& outer_;
  Fabric& inner_fabric_;
  const Clock& clock_;
  SeededRandom random_;
  std::vector<Slot> slots_;  // outlive inner_: its reads land in them
  std::vector<std::uint32_t> free_;
  std::multimap<Instant, std::uint32_t> delayed_;
  std::unique_ptr<ReadQueue> inner_;
  bool closed_ = false;
};

}  // namespace engram::fabric
