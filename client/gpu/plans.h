// What the row functions need to know of a table, computed once on the CPU as plain arrays. The
// views point into these objects; for a GPU their arrays are copied and the views rebased. Both are
// immutable after they are made: Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gpu/hash_row.h"
#include "client/gpu/row_functions.h"
#include "client/gpu/seal_row.h"
#include "engram/addressing.h"
#include "engram/ids.h"
#include "engram/table_spec.h"

namespace engram::client::gpu {

class HashArrays {
 public:
  // InvalidArgument: what Addressing::Make says of spec and map; another function than
  // "deepseek-v4.1".
  static absl::StatusOr<HashArrays> Make(const TableSpec& spec, TokenMap map);

  // Valid as long as this object. dead_token and skip_dead are the caller's to set.
  HashPlan view() const;
  const TokenMap& token_map() const { return map_; }
  const std::vector<HashLayer>& layers() const { return layers_; }
  const std::vector<HashColumn>& columns() const { return columns_; }

 private:
  HashArrays() = default;
  TokenMap map_;
  std::vector<HashLayer> layers_;
  std::vector<HashColumn> columns_;
  HashPlan numbers_;
};

class SealArrays {
 public:
  SealArrays(const TableUid& table, std::uint32_t row_bytes);
  SealPlan view() const;  // valid as long as this object
  const std::vector<std::uint32_t>& weights() const { return weights_; }

 private:
  std::vector<std::uint32_t> weights_;
  std::uint32_t start_ = 0;
  std::uint32_t row_bytes_;
};

// InvalidArgument: rows that are not E4M3 values followed by one UE8M0 scale for 32 of them.
absl::StatusOr<RowFormat> FormatOf(const TableSpec& spec);

}  // namespace engram::client::gpu
