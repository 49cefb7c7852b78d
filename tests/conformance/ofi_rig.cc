#include <algorithm>

#include "absl/strings/str_join.h"
#include "fabric/ofi/ofi_fabric.h"
#include "fabric/ofi/ofi_target.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

class OfiRig final : public Rig {
 public:
  OfiRig(std::string name, std::string provider,
         Duration connect_timeout = ofi::OfiFabricOptions().connect_timeout)
      : name_(std::move(name)), provider_(std::move(provider)), connect_timeout_(connect_timeout) {}
  std::string name() const override { return name_; }
  std::string absent() const override {
    const auto present = ofi::ListProviders();
    if (!present.ok()) return std::string(present.status().message());
    if (std::find(present->begin(), present->end(), provider_) != present->end()) return "";
    return "no libfabric provider " + provider_ + " here, only " + absl::StrJoin(*present, ", ");
  }
  // A start never takes the address of an earlier one.
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    ofi::OfiTargetOptions options;
    options.provider.provider = provider_;
    options.incarnation = place.incarnation;
    auto target = ofi::OfiTarget::Open(options);
    if (!target.ok()) return target.status();
    return *std::move(target);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    ofi::OfiFabricOptions options;
    options.provider.provider = provider_;
    options.connect_timeout = connect_timeout_;
    auto fabric = ofi::OfiFabric::Open(options);
    if (!fabric.ok()) return fabric.status();
    return *std::move(fabric);
  }

 private:
  const std::string name_;
  const std::string provider_;
  const Duration connect_timeout_;
};

const bool ofi_tcp_registered = RegisterRig(std::make_unique<OfiRig>("ofi_tcp", "tcp;ofi_rxm"));
// On the first RDMA port; run in a virtual machine with soft-RoCE by `./dev vm rdma`, where a
// connection takes a processor's time that is not there.
const bool ofi_verbs_registered =
    RegisterRig(std::make_unique<OfiRig>("ofi_verbs", "verbs;ofi_rxm", std::chrono::seconds(15)));
const bool ofi_shm_registered = RegisterRig(std::make_unique<OfiRig>("ofi_shm", "shm"));

}  // namespace
}  // namespace engram::fabric::conformance
