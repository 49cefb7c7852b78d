// Where the rows of a table come from when no replica has them: a checkpoint directory or the
// synthetic function. Fills the memory of replicas; knows nothing of shards, states or threads.
// Immutable after Open: Thread-safe, with one Scratch per thread.
#pragma once

#include <deque>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/node_protocol.h"
#include "engram/table_spec.h"
#include "poolserver/checkpoints.h"
#include "poolserver/direct_file.h"
#include "poolserver/row_packer.h"

namespace engram::poolserver {

class LoadSource {
 public:
  // Read buffers of one thread, one per plane.
  using Scratch = std::deque<ReadBuffer>;

  // Opens what table.source names and checks that it holds the table of table.spec. Every error
  // names the directory, file or field.
  static absl::StatusOr<std::unique_ptr<LoadSource>> Open(const TableRecord& table,
                                                          Checkpoints* checkpoints);
  // What a source holds, for a table that is to be made from it.
  static absl::StatusOr<Inspection> Inspect(const TableName& table, const TableSource& source,
                                            Checkpoints* checkpoints);
  virtual ~LoadSource() = default;

  // Fills `runs`, packed and sealed. REQUIRES: each run starts where the one before ended, and all
  // lie in one layer. DataLoss: the source does not have the bytes; what the runs' memory holds
  // then is unspecified.
  virtual absl::Status Fill(std::span<const RowRun> runs, Scratch* scratch) const = 0;
};

}  // namespace engram::poolserver
