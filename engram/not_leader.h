// How a controller that does not lead refuses what only the leader may answer, and how whoever
// asked finds the leader. Unavailable, so that everybody who can try again does. Free functions:
// Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace engram {

// `leader`: HOST:PORT, or empty while nobody leads.
absl::Status NotLeader(const std::string& leader);
bool IsNotLeader(const absl::Status& status);
// The address that a refusal names.
std::optional<std::string> LeaderNamedBy(const absl::Status& status);

}  // namespace engram
