// Reads all rows of one replay step, as an engine would: addresses, then one part a layer and piece
// of the step, several requests outstanding. Then, outside the timed section, judges every row.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay.h"
#include "client/rpc/pool.h"
#include "fabric/memory.h"

namespace engram::bench {

struct StepOutcome {
  Duration took{};  // addresses and reads
  std::uint64_t rows_ok = 0, rows_failed = 0;
  std::uint64_t rows_wrong = 0;  // delivered with other bytes, or failed without the poison pattern
  std::uint64_t rows_verified = 0;  // delivered with the right bytes
  std::uint64_t rows_distinct = 0;
  std::string failure;  // the first one of the step, for people; empty when every row was delivered
};

class StepReader {
 public:
  static absl::StatusOr<std::unique_ptr<StepReader>> Open(client::Table* table,
                                                          std::uint64_t table_seed,
                                                          std::uint32_t max_tokens,
                                                          Duration deadline);

  absl::StatusOr<StepOutcome> Read(const Step& step);
  // Rows delivered so far by the node that held them.
  const std::map<std::string, std::uint64_t>& rows_by_node() const { return rows_by_node_; }

 private:
  static constexpr std::uint32_t kPieceTokens = 256;  // tokens of one request
  static constexpr std::uint32_t kSlots = 4;

  StepReader(client::Table* table, std::uint64_t table_seed, Duration deadline)
      : table_(table), table_seed_(table_seed), deadline_(deadline) {}
  absl::Status Address(const Step& step);
  void Start(std::uint32_t first_token, std::uint32_t tokens, Instant deadline);
  void CollectOldest(StepOutcome& outcome);
  void Judge(StepOutcome& outcome);
  void CountNodes();

  client::Table* const table_;
  const std::uint64_t table_seed_;
  const Duration deadline_;
  std::uint32_t columns_ = 0, row_bytes_ = 0;
  std::uint32_t tokens_ = 0;  // of the step being read
  fabric::HostBuffer out_;
  std::unique_ptr<client::Destination> destination_;
  std::unique_ptr<client::RowReader> reader_;
  std::vector<std::byte> poison_;
  std::vector<RowId> ids_;            // [token][column]
  std::vector<ReadStatus> statuses_;  // the same shape, filled part by part
  std::vector<client::RowReader::Slot> outstanding_;
  std::vector<std::uint64_t> sorted_;
  std::vector<std::byte> expected_;
  std::map<std::string, std::uint64_t> rows_by_node_;
};

}  // namespace engram::bench
