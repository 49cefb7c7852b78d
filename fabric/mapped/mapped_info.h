// What mapped memory can do. Thread-safe.
#pragma once

#include "fabric/fabric.h"

namespace engram::fabric {

FabricInfo MappedInfo();

}  // namespace engram::fabric
