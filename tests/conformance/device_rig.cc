// Mapped memory on a device that readers map by themselves; a file stands for the device. Each
// target has its own, in a folder that this process and the children it starts share.

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric/dax/device_peer.h"
#include "fabric/dax/device_target.h"
#include "fabric/mapped/mapped_fabric.h"
#include "tests/conformance/node.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "ENGRAM_CONFORMANCE_DEVICES";
// Two starts of a node lie side by side: what the first one left stays until its readers are gone,
// as it would if the second had waited for their leases.
constexpr std::uint64_t kPart = (kSlabs + 1) * kSlabBytes;
constexpr std::uint64_t kBytes = 2 * kPart + (std::uint64_t{1} << 20);

// Made by the suite's process, and removed at its end.
class Folder {
 public:
  Folder() {
    if (getenv(kFolder) != nullptr) return;
    std::string pattern = "/dev/shm/engram-conformance.XXXXXX";
    made_ = mkdtemp(pattern.data());
    setenv(kFolder, made_.c_str(), 1);
  }
  ~Folder() {
    std::error_code none;
    if (!made_.empty()) fs::remove_all(made_, none);
  }
  static std::string path() {
    static const Folder folder;
    return getenv(kFolder);
  }

 private:
  std::string made_;
};

std::vector<DaxDescription> Devices() {
  std::vector<DaxDescription> found;
  for (const auto& entry : fs::directory_iterator(Folder::path())) {
    auto device = DescribeDax("file:" + entry.path().string());
    if (device.ok()) found.push_back(*std::move(device));
  }
  return found;
}

// The device whose superblock a target's address names, else a new one. Those that nobody uses are
// removed then.
absl::StatusOr<DaxDescription> DeviceAt(const std::string& address) {
  for (const DaxDescription& device : Devices()) {
    auto known = dax::OwnedDevice::Open(device, {NodeId{"node-a"}, std::chrono::seconds(10), {}});
    if (!known.ok()) continue;
    if (dax::FormatDeviceAddress((*known)->uuid()) == address) return device;
    unlink(device.path.c_str());
  }
  std::string pattern = Folder::path() + "/device.XXXXXX";
  const int fd = mkstemp(pattern.data());
  if (fd < 0) return absl::ErrnoToStatus(errno, pattern);
  const int rc = ftruncate(fd, static_cast<off_t>(kBytes));
  close(fd);
  if (rc != 0) return absl::ErrnoToStatus(errno, pattern);
  return DescribeDax("file:" + pattern);
}

class DeviceRig final : public Rig {
 public:
  DeviceRig() { Folder::path(); }  // before a child is started
  std::string name() const override { return "mapped_device"; }
  bool asks_target() const override { return false; }

  absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetPlace& place) const override {
    auto described = DeviceAt(place.address);
    if (!described.ok()) return described.status();
    auto device = dax::OwnedDevice::Open(*described, {place.node, std::chrono::seconds(10), {}});
    if (!device.ok()) return device.status();
    if (place.incarnation.value() % 2 == 0) {
      auto first = (*device)->memory()->Take(kPart);
      if (!first.ok()) return first.status();
    }
    auto target = dax::OpenDeviceTarget({*device, nullptr, std::chrono::seconds(1)});
    if (!target.ok()) return target.status();
    (*target)->SetIncarnation(place.incarnation);
    std::lock_guard lock(mutex_);
    memory_[target->get()] = (*device)->memory();
    return target;
  }
  absl::StatusOr<std::unique_ptr<Slab>> MakeSlab(const Target& target,
                                                 const SlabOptions& options) const override {
    std::lock_guard lock(mutex_);
    return Slab::OnDevice(memory_.at(&target).lock(), options.bytes);
  }
  absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric() const override {
    return OpenMappedFabric(Devices);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<const Target*, std::weak_ptr<DaxDevice>> memory_;
};

const bool device_registered = RegisterRig(std::make_unique<DeviceRig>());

}  // namespace
}  // namespace engram::fabric::conformance
