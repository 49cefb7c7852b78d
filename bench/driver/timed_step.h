// Steps of two layers through the prefetcher, as an engine submits them, with uniform row ids:
// timed from the submit on, every row verified outside the timed section. And the same as a
// ReadPath, to stand beside the bare reader. Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/driver/measure.h"
#include "bench/driver/paths.h"
#include "client/rpc/pool.h"
#include "engram/random.h"
#include "fabric/memory.h"

namespace engram::bench {

class TimedStep {
 public:
  static constexpr std::uint32_t kLayers = 2;

  // Each layer has `layer_rows` rows. `table` and `prefetcher` outlive this.
  static absl::StatusOr<std::unique_ptr<TimedStep>> Open(
      const client::Table& table, client::SharedPrefetcher* prefetcher, const TableShape& shape,
      client::StepKind kind, std::uint32_t layer_rows, std::uint64_t seed);

  void Draw();  // new ids
  // The first layer is needed `window` from now, the second when there is time.
  absl::Status Submit(Duration window);
  // Until the first layer (every layer) is there; the error names what failed.
  absl::Status WaitFirst() { return Wait(false); }
  absl::Status WaitAll() { return Wait(true); }
  bool Done() { return prefetcher_->PollAll(ticket_); }
  // Ends the step and judges every row: DataLoss names the first wrong one.
  absl::Status Finish();
  // Draw, Submit, WaitAll, Finish; the time of the middle two.
  absl::StatusOr<Duration> Run(Duration window);
  std::uint64_t rows_verified() const { return rows_verified_; }
  std::vector<RowId>& ids() { return ids_; }

 private:
  TimedStep(client::SharedPrefetcher* prefetcher, const TableShape& shape, client::StepKind kind,
            std::uint32_t layer_rows, std::uint64_t seed);
  absl::Status Wait(bool all);

  client::SharedPrefetcher* const prefetcher_;
  const TableShape shape_;
  const client::StepKind kind_;
  SeededRandom random_;
  std::vector<RowId> ids_;  // [layer][row]
  fabric::HostBuffer out_;
  std::unique_ptr<client::Destination> destination_;
  client::Ticket ticket_;
  std::vector<std::byte> expected_;
  std::uint64_t rows_verified_ = 0;
};

// Every batch is a step of two layers of half its rows.
absl::StatusOr<std::unique_ptr<ReadPath>> StepPath(std::string name, const client::Table& table);

}  // namespace engram::bench
