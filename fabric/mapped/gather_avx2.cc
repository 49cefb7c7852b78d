// Compiled with -mavx2 (fabric/CMakeLists.txt).
#if defined(__x86_64__)

#include "fabric/mapped/gather_loop.h"

namespace engram::fabric {

void GatherAvx2(const ReadOp* ops, std::size_t count, std::uint64_t key, CompletionRing ring) {
  Gather(ops, count, key, ring);
}

}  // namespace engram::fabric

#endif
