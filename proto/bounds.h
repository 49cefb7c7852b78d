// Bound checks shared by the conversions.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace engram::wire {

inline absl::Status CheckCount(const char* field, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", count, " entries; the limit of one message is ", limit));
}

}  // namespace engram::wire
