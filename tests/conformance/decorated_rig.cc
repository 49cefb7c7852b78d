// The decorators pass the suite, too: around loopback and mapped, with delays, reordering and
// partial acceptance that change no outcome.

#include <utility>

#include "engram/clock.h"
#include "fabric/fault/fault_fabric.h"
#include "fabric/metered/metered_fabric.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

// A rig whose readers look through a decorator at another rig. The inner one is looked up late:
// rigs register in any order.
class DecoratedRig : public Rig {
 public:
  explicit DecoratedRig(std::string inner) : inner_(std::move(inner)) {}
  bool across_processes() const override { return FindRig(inner_)->across_processes(); }
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    return FindRig(inner_)->OpenTarget(place);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    auto fabric = FindRig(inner_)->OpenFabric();
    if (!fabric.ok()) return fabric.status();
    return Decorate(*std::move(fabric));
  }
  const std::string& inner() const { return inner_; }

 protected:
  virtual std::unique_ptr<Fabric> Decorate(std::unique_ptr<Fabric> fabric) const = 0;

 private:
  const std::string inner_;
};

class FaultRig final : public DecoratedRig {
 public:
  using DecoratedRig::DecoratedRig;
  std::string name() const override { return "fault_" + inner(); }

 protected:
  std::unique_ptr<Fabric> Decorate(std::unique_ptr<Fabric> fabric) const override {
    FaultOptions options;
    options.delay_max = std::chrono::microseconds(200);
    options.partial_per_million = 300'000;
    return std::make_unique<FaultFabric>(std::move(fabric), options, SystemClock::Get());
  }
};

class MeteredRig final : public DecoratedRig {
 public:
  using DecoratedRig::DecoratedRig;
  std::string name() const override { return "metered_" + inner(); }

 protected:
  std::unique_ptr<Fabric> Decorate(std::unique_ptr<Fabric> fabric) const override {
    return std::make_unique<MeteredFabric>(std::move(fabric), SystemClock::Get());
  }
};

const bool registered = RegisterRig(std::make_unique<FaultRig>("loopback")) &&
                        RegisterRig(std::make_unique<FaultRig>("mapped")) &&
                        RegisterRig(std::make_unique<MeteredRig>("mapped"));

}  // namespace
}  // namespace engram::fabric::conformance
