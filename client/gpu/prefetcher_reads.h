// Steps of a ring read by a Prefetcher of this process. Thread-confined: call from the owner thread
// only.
#pragma once

#include "client/gpu/step_reads.h"
#include "client/prefetcher.h"

namespace engram::client::gpu {

class PrefetcherReads final : public StepReads {
 public:
  // `prefetcher` outlives this; nobody else uses it.
  explicit PrefetcherReads(Prefetcher* prefetcher) : prefetcher_(*prefetcher) {}
  Started Submit(const Step& step, Ticket* ticket) override {
    const SubmitStatus status = prefetcher_.Submit(step, ticket);
    if (status == SubmitStatus::kStarted) return Started::kStarted;
    return status == SubmitStatus::kBusy ? Started::kBusy : Started::kRefused;
  }
  void Progress() override { prefetcher_.Progress(); }
  LayerState State(Ticket ticket, std::uint32_t layer) override {
    return prefetcher_.State(ticket, layer);
  }
  void Release(Ticket ticket) override { prefetcher_.Release(ticket); }

 private:
  Prefetcher& prefetcher_;
};

}  // namespace engram::client::gpu
