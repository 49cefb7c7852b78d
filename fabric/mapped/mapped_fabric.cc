#include "fabric/mapped/mapped_fabric.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/mapped/mapped_info.h"
#include "fabric/mapped/mapped_peer.h"
#include "fabric/mapped/mapped_queue.h"
#include "fabric/plain_region.h"

namespace engram::fabric {
namespace {

constexpr Duration kImportPatience = std::chrono::seconds(5);

class MappedFabric final : public Fabric {
 public:
  explicit MappedFabric(dax::DeviceFinder devices) : devices_(std::move(devices)) {}

  const FabricInfo& info() const override { return info_; }

  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant deadline) override {
    if (dax::ParseDeviceAddress(address.path.address)) {
      return Keep(dax::DevicePeer::Attach(address, devices_));
    }
    return Keep(mapped::MappedPeer::Connect(address, deadline));
  }

  void RemovePeer(PeerId peer) override {
    std::shared_ptr<mapped::Peer> last;  // unmaps outside the lock
    MutexLock lock(&mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    last = std::move(found->second);
    peers_.erase(found);
  }

  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override {
    const std::shared_ptr<mapped::Peer> peer = Find(granted.peer);
    if (peer == nullptr) {
      return absl::UnavailableError(absl::StrCat("peer ", granted.peer.value(), " is gone"));
    }
    auto address = peer->Import(granted, SystemClock::Get().Now() + kImportPatience);
    if (!address.ok()) return address.status();
    return RemoteRegion{granted.peer, *address, granted.length, key_};
  }

  void Release(const RemoteRegion& imported) override {
    const std::shared_ptr<mapped::Peer> peer = Find(imported.peer);
    if (peer != nullptr && imported.key == key_) peer->Release(imported.address);
  }

  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override {
    return PlainRegion::Make(memory, kind);
  }

  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override {
    return std::make_unique<MappedQueue>(key_,
                                         std::clamp(options.depth, 1u, info_.max_outstanding));
  }

 private:
  template <class Peer>
  absl::StatusOr<PeerId> Keep(absl::StatusOr<std::shared_ptr<Peer>> peer) {
    if (!peer.ok()) return peer.status();
    MutexLock lock(&mutex_);
    const PeerId id(next_++);
    peers_[id] = *std::move(peer);
    return id;
  }

  std::shared_ptr<mapped::Peer> Find(PeerId id) {
    MutexLock lock(&mutex_);
    const auto found = peers_.find(id);
    return found == peers_.end() ? nullptr : found->second;
  }

  const FabricInfo info_ = MappedInfo();
  const dax::DeviceFinder devices_;
  const std::uint64_t key_ = SystemRandom().Next();
  Mutex mutex_;
  std::uint32_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<PeerId, std::shared_ptr<mapped::Peer>> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

FabricInfo MappedInfo() {
  FabricInfo info;
  info.kind = FabricKind::kMapped;
  info.provider = "mapped";
  info.one_sided = true;
  info.offloaded = true;
  info.max_op_bytes = std::uint64_t{1} << 30;
  info.max_outstanding = 65'536;
  info.wrong_key = WrongKey::kUndetected;
  return info;
}

std::unique_ptr<Fabric> OpenMappedFabric(dax::DeviceFinder devices) {
  return std::make_unique<MappedFabric>(std::move(devices));
}

}  // namespace engram::fabric
