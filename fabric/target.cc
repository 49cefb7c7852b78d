#include "fabric/target.h"

#include "absl/strings/str_cat.h"

namespace engram::fabric {

absl::Status CheckExposed(const ExposedMemory& memory) {
  if (memory.slab != nullptr && memory.alignment > 0 && memory.offset <= memory.slab->bytes() &&
      memory.length <= memory.slab->bytes() - memory.offset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("exposed memory [", memory.offset, ", +", memory.length, ") with alignment ",
                   memory.alignment, " is not inside its slab of ",
                   memory.slab == nullptr ? 0 : memory.slab->bytes(), " bytes"));
}

}  // namespace engram::fabric
