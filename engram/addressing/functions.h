// The named address functions, one file each. A new one is a file beside this header, a line here
// and a line in engram/addressing.cc. Thread-safe.
//
// Each factory checks the parts of the spec that only its function understands. REQUIRES:
// spec.Validate() is OK and the token map has passed the checks of Addressing::Make.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engram/addressing.h"

namespace engram {

absl::StatusOr<std::unique_ptr<Addressing>> MakeDeepseekV41(const TableSpec& spec, TokenMap map);

}  // namespace engram
