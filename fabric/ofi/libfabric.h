// libfabric, loaded at its first use: nothing of this project links it, so that libengram.so and
// the programs carry neither it nor the NIC libraries that it brings along, and run without it
// where nobody asks for ofi. Everything of its API that is not here is inline over tables of
// operations. It stays loaded until the process ends. Thread-safe.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace engram::fabric::ofi {

// The calls that are symbols of the library, with the signatures of rdma/fabric.h.
struct Libfabric {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;  // of null: a new one
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;

  // What a negative or positive error of any call means.
  std::string Explain(std::int64_t error) const;
};

// Loads `file` for good (fabric/loaded_library.h). Unavailable names the file, what the loader said
// and the package to install.
absl::StatusOr<Libfabric> OpenLibfabric(const std::string& file);

// That of this process, "libfabric.so.1". Tried again as long as it failed; the pointer is valid
// until the process ends.
absl::StatusOr<const Libfabric*> LoadLibfabric();

// Frees with the library that made it.
struct InfoFree {
  const Libfabric* library = nullptr;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFree>;

}  // namespace engram::fabric::ofi
