// Steps of a ring read by libengram, through its C ABI: libengram_gpu links nothing of the client's
// insides. Thread-confined: call from the owner thread only.
#pragma once

#include <engram/engram.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gpu/step_reads.h"

namespace engram::client::gpu {

class AbiReads final : public StepReads {
 public:
  // For `steps` steps at once of at most `max_step_rows` rows. The table outlives this.
  static absl::StatusOr<std::unique_ptr<AbiReads>> Open(engram_table* table, std::uint32_t steps,
                                                        std::uint32_t max_step_rows);
  ~AbiReads() override { engram_prefetcher_close(prefetcher_); }

  Started Submit(const Step& step, Ticket* ticket) override;
  // State() looks by itself.
  void Progress() override {}
  LayerState State(Ticket ticket, std::uint32_t layer) override;
  void Release(Ticket ticket) override;

 private:
  AbiReads() = default;
  engram_prefetcher* prefetcher_ = nullptr;
  std::vector<engram_ticket> tickets_;  // by Ticket::index; 0: free
  std::vector<engram_layer_rows> layers_;
};

}  // namespace engram::client::gpu
