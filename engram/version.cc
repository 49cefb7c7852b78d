#include "engram/version.h"

namespace engram {

std::string_view Version() { return ENGRAM_VERSION; }

}  // namespace engram
