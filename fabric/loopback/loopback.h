// The textbook fabric: target and reader in one process, a registry of targets between them, plain
// memcpy, every rule of the contract checked under one mutex. For tests, and to read first.
//
// It is meant to be strict rather than fast: a key that is not granted, a range outside the region
// or an offset off the stride refuses the read; a stopped target makes it unreachable.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "fabric/fabric.h"
#include "fabric/target.h"

namespace engram::fabric {

struct LoopbackTargetOptions {
  NodeId node;
  Incarnation incarnation;
  std::string address;  // empty: a fresh one
};

// AlreadyExists when a running target has the address.
absl::StatusOr<std::unique_ptr<Target>> OpenLoopbackTarget(const LoopbackTargetOptions& options);

std::unique_ptr<Fabric> OpenLoopbackFabric();

}  // namespace engram::fabric
