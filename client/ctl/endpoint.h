// Which pool a command talks to: --endpoint, else ENGRAM_ENDPOINT, else the current context, a
// small YAML file (keys `endpoint` and, for a local pool, `data_dir`) at $ENGRAM_CONTEXT or
// ~/.config/engram/context.yaml. Thread-compatible.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace engram::ctl {

struct CurrentPool {
  std::string endpoint;  // HOST:PORT, or several with commas
  std::string data_dir;  // of a local pool on this host; else empty
};

// The variable's value; `otherwise` if it is not set or empty.
std::string EnvironmentOr(const char* name, const std::string& otherwise);

std::string ContextPath();
// NotFound: there is no context. InvalidArgument: the file does not parse (names it).
absl::StatusOr<CurrentPool> ReadContext();
absl::Status WriteContext(const CurrentPool& pool);
// Removes the context if it names this data directory.
void ForgetContext(const std::string& data_dir);

// `given` is the flag's or variable's value, or "". UsageError: not HOST:PORT, or no pool is named
// anywhere.
absl::StatusOr<std::string> ResolveEndpoint(const std::string& given);

}  // namespace engram::ctl
