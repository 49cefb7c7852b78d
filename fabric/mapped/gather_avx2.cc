// Compiled with -mavx2 (fabric/CMakeLists.txt).
#if defined(__x86_64__)

#include "fabric/mapped/gather_loop.h"

namespace engram::fabric {

const Gathering kGatherAvx2 = {GatherOps, GatherRowsNow};

}  // namespace engram::fabric

#endif
