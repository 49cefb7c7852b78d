// The conformance suite runs on every fabric that is present. A rig says how to open one.
//
// To add a fabric: write tests/conformance/NAME_rig.cc with a subclass of Rig and, in an unnamed
// namespace,
//     const bool registered = RegisterRig(std::make_unique<NameRig>());
// Nothing else: the suite (suite_*.cc) takes what it may expect from FabricInfo, and starts the
// rig's target in a child process (main.cc, `--target`) where a test kills or stops it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "fabric/fabric.h"
#include "fabric/memory.h"
#include "fabric/target.h"

namespace engram::fabric::conformance {

struct TargetPlace {
  NodeId node;
  Incarnation incarnation;
  // PathAddress::address of an earlier target whose place this one takes; empty: any free one.
  std::string address;
};

// Immutable: Thread-safe.
class Rig {
 public:
  virtual ~Rig() = default;
  // Letters, digits and underscores: part of the test names.
  virtual std::string name() const = 0;
  // Why the fabric cannot run on this machine; empty: it can.
  virtual std::string absent() const { return ""; }
  // False: target and reader must share a process; the tests that kill or stop one are skipped.
  virtual bool across_processes() const { return true; }
  virtual absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const = 0;
  // Memory that `target`, which OpenTarget made, can expose.
  virtual absl::StatusOr<std::unique_ptr<Slab>> MakeSlab(const Target& target,
                                                         const SlabOptions& options) const {
    static_cast<void>(target);
    return Slab::Create(options);
  }
  // False: whoever is told of a region reads it, whatever became of its session, and nobody answers
  // for a target: a device that readers map by themselves.
  virtual bool asks_target() const { return true; }
};

// Returns true. Called before main.
bool RegisterRig(std::unique_ptr<Rig> rig);
// In the order of their names.
std::vector<const Rig*> AllRigs();
const Rig* FindRig(const std::string& name);

}  // namespace engram::fabric::conformance
