#include "fabric/mapped/mapped_fabric.h"
#include "fabric/mapped/mapped_target.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

class MappedRig final : public Rig {
 public:
  std::string name() const override { return "mapped"; }
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    MappedTargetOptions options;
    options.node = place.node;
    options.incarnation = place.incarnation;
    options.address = place.address;
    return OpenMappedTarget(options);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override { return OpenMappedFabric(); }
};

const bool mapped_registered = RegisterRig(std::make_unique<MappedRig>());

}  // namespace
}  // namespace engram::fabric::conformance
