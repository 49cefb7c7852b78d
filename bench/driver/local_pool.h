// A local pool for the time of a benchmark, driven through engramctl as a user would; gone with the
// object. Thread-confined: call from the owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace engram::bench {

class LocalPool {
 public:
  // Starts `nodes` nodes; `fabrics` is engramctl's --fabric. Unavailable carries what engramctl
  // said.
  static absl::StatusOr<std::unique_ptr<LocalPool>> Up(const std::string& bin_dir, int nodes,
                                                       const std::string& memory_per_node,
                                                       const std::string& fabrics);
  ~LocalPool();
  LocalPool(const LocalPool&) = delete;
  LocalPool& operator=(const LocalPool&) = delete;

  // Runs engramctl with these arguments and returns its standard output.
  absl::StatusOr<std::string> Ctl(const std::vector<std::string>& arguments) const;
  // `engramctl local VERB` of this pool.
  absl::StatusOr<std::string> Local(const std::string& verb) const;
  const std::string& endpoint() const { return endpoint_; }
  const std::string& dir() const { return dir_; }

 private:
  LocalPool() = default;
  std::string bin_dir_, dir_, endpoint_;
};

// Runs a program and waits for it; Unavailable carries the end of its standard error.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command);

}  // namespace engram::bench
