#include "fabric/mapped/gather_loop.h"

namespace engram::fabric {

const Gathering kGatherBaseline = {GatherOps, GatherRowsNow};

const Gathering& ChooseGather() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return kGatherAvx2;
#endif
  return kGatherBaseline;
}

}  // namespace engram::fabric
