// Steps of a ring read by libengram, through its C ABI: libengram_gpu links nothing of the client's
// insides. Thread-confined: call from the owner thread only.
#pragma once

#include <engram/engram.h>

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gpu/step_reads.h"

namespace engram::client::gpu {

class AbiReads final : public StepReads {
 public:
  // For `steps` steps at once of at most `max_step_rows` rows, which land in `landing`: it is
  // registered with the table, so that rows land there on every fabric. Both outlive this.
  static absl::StatusOr<std::unique_ptr<AbiReads>> Open(engram_table* table, std::uint32_t steps,
                                                        std::uint32_t max_step_rows,
                                                        std::span<std::byte> landing);
  ~AbiReads() override;

  Started Submit(const Step& step, Ticket* ticket) override;
  // State() looks by itself.
  void Progress() override {}
  LayerState State(Ticket ticket, std::uint32_t layer) override;
  void Release(Ticket ticket) override;

 private:
  explicit AbiReads(engram_table* table) : table_(table) {}
  engram_table* const table_;
  engram_destination landing_ = 0;
  engram_prefetcher* prefetcher_ = nullptr;
  std::vector<engram_ticket> tickets_;  // by Ticket::index; 0: free
  std::vector<engram_layer_rows> layers_;
};

}  // namespace engram::client::gpu
