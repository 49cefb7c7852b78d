#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "fabric/stream/stream_fabric.h"
#include "fabric/stream/stream_target.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

class StreamRig : public Rig {
 public:
  std::string name() const override { return "stream_tcp"; }
  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    stream::StreamTargetOptions options;
    options.listen = place.address.empty() ? FreeAddress() : place.address;
    options.incarnation = place.incarnation;
    auto target = stream::StreamTarget::Open(options);
    if (!target.ok()) return target.status();
    return *std::move(target);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    auto fabric = stream::StreamFabric::Open({});
    if (!fabric.ok()) return fabric.status();
    return *std::move(fabric);
  }
  virtual std::string FreeAddress() const { return "127.0.0.1:0"; }
};

class StreamUnixRig final : public StreamRig {
 public:
  std::string name() const override { return "stream_unix"; }
  std::string FreeAddress() const override {
    static std::atomic<int> next{0};
    return absl::StrCat("unix:/tmp/engram-conformance-", getpid(), "-", next.fetch_add(1));
  }
};

const bool stream_tcp_registered = RegisterRig(std::make_unique<StreamRig>());
const bool unix_registered = RegisterRig(std::make_unique<StreamUnixRig>());

}  // namespace
}  // namespace engram::fabric::conformance
