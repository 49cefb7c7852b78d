#include "fabric/ucx/ucx_fabric.h"
#include "fabric/ucx/ucx_target.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

class UcxRig final : public Rig {
 public:
  UcxRig(std::string name, ucx::TransportOptions transport)
      : name_(std::move(name)), transport_(std::move(transport)) {}
  std::string name() const override { return name_; }
  // A target on which UCX emulates the get does not survive its readers.
  bool across_processes() const override { return !transport_.emulate_get; }
  std::string absent() const override {
    const auto fabric = OpenFabric();
    return fabric.ok() ? "" : std::string(fabric.status().message());
  }
  // A start never takes the address of an earlier one.
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    ucx::UcxTargetOptions options;
    options.transport = transport_;
    options.incarnation = place.incarnation;
    auto target = ucx::UcxTarget::Open(options);
    if (!target.ok()) return target.status();
    return *std::move(target);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    ucx::UcxFabricOptions options;
    options.transport = transport_;
    auto fabric = ucx::UcxFabric::Open(options);
    if (!fabric.ok()) return fabric.status();
    return *std::move(fabric);
  }

 private:
  const std::string name_;
  const ucx::TransportOptions transport_;
};

bool Register(const std::string& name, ucx::TransportOptions transport) {
  return RegisterRig(std::make_unique<UcxRig>(name, std::move(transport)));
}

const bool tcp_registered = Register("ucx_tcp", {.transports = "tcp"});
const bool sysv_registered = Register("ucx_sysv", {.transports = "sysv"});
// The way of rc and dc, without a NIC.
const bool get_registered = Register("ucx_get", {.transports = "tcp", .emulate_get = true});

}  // namespace
}  // namespace engram::fabric::conformance
