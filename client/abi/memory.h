// What this process can say of a caller's memory before anything is written to it: whether all of
// it is mapped and writable, as the kernel's list of mappings has it. Memory that an allocator took
// back but did not unmap looks like any other. Slow (a file is read). Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace engram::client::abi {

// InvalidArgument names `what`, the address, and why nothing can land there. OK where the kernel
// does not show its list.
absl::Status CheckWritable(const std::string& what, const void* memory, std::size_t bytes);

// "0x7f...", for messages.
std::string Address(const void* memory);

}  // namespace engram::client::abi
