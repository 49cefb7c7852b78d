#include "engram/session.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace engram {

std::string_view Name(FabricKind kind) {
  switch (kind) {
    case FabricKind::kLoopback: return "loopback";
    case FabricKind::kMapped: return "mapped";
    case FabricKind::kStream: return "stream";
    case FabricKind::kOfi: return "ofi";
    case FabricKind::kUcx: return "ucx";
  }
  return "unknown";
}

absl::StatusOr<FabricKind> ParseFabricKind(std::string_view name) {
  for (FabricKind kind : {FabricKind::kLoopback, FabricKind::kMapped, FabricKind::kStream,
                          FabricKind::kOfi, FabricKind::kUcx}) {
    if (Name(kind) == name) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("fabric \"", std::string(name),
                                                 "\" is unknown; use mapped, stream, ofi or ucx"));
}

}  // namespace engram
