#include "fabric/loopback/loopback.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

class LoopbackRig final : public Rig {
 public:
  std::string name() const override { return "loopback"; }
  bool across_processes() const override { return false; }
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    return OpenLoopbackTarget({place.node, place.incarnation, place.address});
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    return OpenLoopbackFabric();
  }
};

const bool loopback_registered = RegisterRig(std::make_unique<LoopbackRig>());

}  // namespace
}  // namespace engram::fabric::conformance
