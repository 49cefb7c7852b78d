#include "fabric/mapped/gather_loop.h"

namespace engram::fabric {

void GatherBaseline(const ReadOp* ops, std::size_t count, std::uint64_t key, CompletionRing ring) {
  Gather(ops, count, key, ring);
}

GatherFunction ChooseGather() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return GatherAvx2;
#endif
  return GatherBaseline;
}

}  // namespace engram::fabric
