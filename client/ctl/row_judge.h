// What the rows of a table must be, from where the table came: the synthetic function, or the files
// of a checkpoint. Thread-compatible.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/table_spec.h"

namespace engram::ctl {

class RowJudge {
 public:
  // `checkpoint_dir` "" takes the directory that the table was loaded from, as this host sees it.
  // FailedPrecondition: the checkpoint there is not the table's (says both digests).
  static absl::StatusOr<std::unique_ptr<RowJudge>> Open(const TableRecord& table,
                                                        const std::string& checkpoint_dir);
  virtual ~RowJudge() = default;

  // Packed rows from `first`. REQUIRES: out holds whole rows, and they exist.
  virtual absl::Status Expected(RowId first, std::span<std::byte> out) const = 0;
  // "the synthetic function, seed 7", "the files in /models/x".
  virtual std::string Name() const = 0;
};

}  // namespace engram::ctl
