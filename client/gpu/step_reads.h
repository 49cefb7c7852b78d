// Where the ring's client side has its rows read: a Prefetcher of this process, or libengram
// through its C ABI (client/gpu/abi_reads.h), or straight into the GPU's memory
// (client/gpu/direct_reads.h). Thread-confined: call from the owner thread only.
#pragma once

#include "client/prefetcher.h"
#include "client/ticket.h"

namespace engram::client::gpu {

class StepReads {
 public:
  enum class Started {
    kStarted,
    kBusy,     // not now: try again
    kRefused,  // never: the step is wrong
  };
  virtual ~StepReads() = default;

  // *ticket is set when kStarted; the caller must Release it. Ids are copied.
  virtual Started Submit(const Step& step, Ticket* ticket) = 0;
  virtual void Progress() = 0;
  // A layer that is not pending has no read outstanding.
  virtual LayerState State(Ticket ticket, std::uint32_t layer) = 0;
  // Nothing of the step lands after it returns.
  virtual void Release(Ticket ticket) = 0;
  // What has landed is there for the GPU when it returns true. In host memory it is: the word that
  // tells of it is stored with release.
  virtual bool Flush() { return true; }
};

}  // namespace engram::client::gpu
