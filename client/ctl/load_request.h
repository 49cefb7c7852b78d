// From the options of `load` and `plan` to the request that the controller gets. Pure but for
// reading the files named. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/options.h"
#include "engram/v1/placement.pb.h"

namespace engram::ctl {

struct LoadOptions {
  std::string table;  // NAME@VERSION
  std::string checkpoint, synthetic, name_map;
  std::uint32_t replicas = 1;
  std::uint32_t max_nodes = 0;
  std::string shard_bytes;  // "" = the default
  std::string seal = "crc32c";
  std::string tiers;  // "" = all
};

void DeclareLoadOptions(Options app, LoadOptions* options, bool name_required = true);

// UsageError: not exactly one source, or a value out of range. NotFound, InvalidArgument: a file is
// missing or wrong (names it).
absl::StatusOr<v1::LoadTableRequest> BuildLoadRequest(const LoadOptions& options);

}  // namespace engram::ctl
