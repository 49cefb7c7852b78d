#include "fabric/loopback/loopback.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "fabric/plain_region.h"

namespace engram::fabric {
namespace {

FabricInfo LoopbackInfo() {
  FabricInfo info;
  info.kind = FabricKind::kLoopback;
  info.provider = "loopback";
  info.one_sided = true;
  info.offloaded = true;
  info.max_op_bytes = std::uint64_t{1} << 30;
  info.max_outstanding = 4096;
  info.wrong_key = WrongKey::kFailsRead;
  return info;
}

// What a target and its readers share; outlives both. Read copies under the mutex, so nothing is
// being read once Hide or Stop has had it.
struct Owner {
  const NodeId node;
  const Incarnation incarnation;
  Mutex mutex;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  std::map<std::uint64_t, ExposedMemory> regions ABSL_GUARDED_BY(mutex);
  std::map<SessionToken, std::set<std::uint64_t>> sessions ABSL_GUARDED_BY(mutex);

  Owner(NodeId node, Incarnation incarnation) : node(std::move(node)), incarnation(incarnation) {}
  ReadStatus Read(const SessionToken& session, const ReadOp& op) {
    MutexLock lock(&mutex);
    const auto granted = sessions.find(session);
    if (stopped || granted == sessions.end()) return ReadStatus::kUnreachable;
    const auto region = regions.find(op.region.key);
    if (region == regions.end() || granted->second.count(op.region.key) == 0) {
      return ReadStatus::kRefused;
    }
    // Addresses of this fabric are offsets from the start of the exposed memory.
    const ExposedMemory& memory = region->second;
    const std::uint64_t start = op.region.address + op.offset;
    const bool inside = op.offset <= op.region.length &&
                        op.length <= op.region.length - op.offset && start <= memory.length &&
                        op.length <= memory.length - start;
    if (!inside || start % memory.alignment != 0) return ReadStatus::kRefused;
    const std::byte* from = memory.slab->data() + memory.offset + start;
    for (std::uint8_t i = 0; i < op.segments; ++i) {
      if (op.local[i].bytes == 0) continue;
      memcpy(op.local[i].data, from, op.local[i].bytes);
      from += op.local[i].bytes;
    }
    return ReadStatus::kOk;
  }
};

// The addresses of this process.
struct Registry {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Owner>> owners ABSL_GUARDED_BY(mutex);
  static Registry& Get() {
    static Registry registry;
    return registry;
  }
};

class LoopbackTarget final : public Target {
 public:
  LoopbackTarget(std::string address, std::shared_ptr<Owner> owner)
      : address_(std::move(address)), owner_(std::move(owner)) {}
  ~LoopbackTarget() override { LoopbackTarget::Stop(); }

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override { return {info_.kind, address_, true, true, 0}; }

  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override {
    if (auto status = CheckExposed(memory); !status.ok()) return status;
    const std::uint64_t key = SystemRandom().Next();
    MutexLock lock(&owner_->mutex);
    owner_->regions[key] = memory;
    return ExposedRegion{0, memory.length, key};
  }
  void Hide(std::uint64_t key) override {
    MutexLock lock(&owner_->mutex);
    owner_->regions.erase(key);
  }
  void Admit(const SessionToken& session) override {
    MutexLock lock(&owner_->mutex);
    owner_->sessions[session];
  }
  void Dismiss(const SessionToken& session) override {
    MutexLock lock(&owner_->mutex);
    owner_->sessions.erase(session);
  }
  void Allow(const SessionToken& session, std::uint64_t key) override {
    MutexLock lock(&owner_->mutex);
    if (owner_->sessions.count(session) > 0) owner_->sessions[session].insert(key);
  }
  void Disallow(const SessionToken& session, std::uint64_t key) override {
    MutexLock lock(&owner_->mutex);
    if (owner_->sessions.count(session) > 0) owner_->sessions[session].erase(key);
  }
  void Stop() override {
    {
      MutexLock lock(&owner_->mutex);
      owner_->stopped = true;
    }
    MutexLock lock(&Registry::Get().mutex);
    auto& owners = Registry::Get().owners;
    const auto found = owners.find(address_);
    if (found != owners.end() && found->second == owner_) owners.erase(found);
  }

 private:
  const FabricInfo info_ = LoopbackInfo();
  const std::string address_;
  const std::shared_ptr<Owner> owner_;
};

struct Peer {
  std::shared_ptr<Owner> owner;
  SessionToken token;
};

// The peers of one fabric, shared with its queues.
struct Peers {
  Mutex mutex;
  std::uint32_t next ABSL_GUARDED_BY(mutex) = 1;
  std::map<PeerId, Peer> known ABSL_GUARDED_BY(mutex);

  Peer Find(PeerId id) {
    MutexLock lock(&mutex);
    const auto found = known.find(id);
    return found == known.end() ? Peer{} : found->second;
  }
};

// Reads are carried out in Poll, so that Abandon and Close meet reads that are in flight.
class LoopbackQueue final : public ReadQueue {
 public:
  LoopbackQueue(std::shared_ptr<Peers> peers, std::size_t depth)
      : peers_(std::move(peers)), depth_(depth) {}

  std::size_t Submit(std::span<const ReadOp> ops) override {
    if (closed_) return 0;
    const std::size_t accepted = std::min(ops.size(), depth_ - pending_.size());
    for (const ReadOp& op : ops.first(accepted)) pending_.push_back({op, false});
    return accepted;
  }
  std::size_t Poll(std::span<ReadCompletion> out) override {
    const std::size_t count = std::min(out.size(), pending_.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [op, flushed] = pending_[i];
      const Peer peer = peers_->Find(op.region.peer);
      out[i] = {op.cookie, flushed                 ? ReadStatus::kFlushed
                           : peer.owner == nullptr ? ReadStatus::kUnreachable
                                                   : peer.owner->Read(peer.token, op)};
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  int ArmWait() override { return -1; }
  void Abandon(PeerId peer) override {
    for (auto& [op, flushed] : pending_) flushed |= op.region.peer == peer;
  }
  void Close() override {
    closed_ = true;
    pending_.clear();
  }

 private:
  struct Pending {
    ReadOp op;
    bool flushed;
  };
  const std::shared_ptr<Peers> peers_;
  const std::size_t depth_;
  bool closed_ = false;
  std::vector<Pending> pending_;
};

class LoopbackFabric final : public Fabric {
 public:
  const FabricInfo& info() const override { return info_; }

  absl::StatusOr<PeerId> AddPeer(const PeerAddress& address, Instant) override {
    std::shared_ptr<Owner> owner;
    {
      MutexLock lock(&Registry::Get().mutex);
      const auto found = Registry::Get().owners.find(address.path.address);
      if (found != Registry::Get().owners.end()) owner = found->second;
    }
    const std::string name =
        absl::StrCat("node \"", address.node.name, "\" at ", address.path.address);
    if (owner == nullptr) return absl::UnavailableError(absl::StrCat(name, " does not answer"));
    if (owner->incarnation != address.incarnation || owner->node != address.node) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, ": incarnation ", owner->incarnation.value(), " answers, ",
                       address.incarnation.value(), " was wanted; open a new read session"));
    }
    MutexLock owner_lock(&owner->mutex);
    if (owner->stopped || owner->sessions.count(address.token) == 0) {
      return absl::PermissionDeniedError(absl::StrCat(name, " refuses the session token"));
    }
    MutexLock lock(&peers_->mutex);
    const PeerId id(peers_->next++);
    peers_->known[id] = {owner, address.token};
    return id;
  }
  void RemovePeer(PeerId peer) override {
    MutexLock lock(&peers_->mutex);
    peers_->known.erase(peer);
  }
  absl::StatusOr<RemoteRegion> Import(const RemoteRegion& granted) override { return granted; }
  void Release(const RemoteRegion&) override {}
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> memory,
                                                         MemoryKind kind) override {
    return PlainRegion::Make(memory, kind);
  }
  absl::StatusOr<std::unique_ptr<ReadQueue>> OpenQueue(const QueueOptions& options) override {
    const std::uint32_t depth = std::clamp(options.depth, 1u, info_.max_outstanding);
    return std::make_unique<LoopbackQueue>(peers_, depth);
  }

 private:
  const FabricInfo info_ = LoopbackInfo();
  const std::shared_ptr<Peers> peers_ = std::make_shared<Peers>();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> OpenLoopbackTarget(const LoopbackTargetOptions& options) {
  auto owner = std::make_shared<Owner>(options.node, options.incarnation);
  std::string address = options.address;
  if (address.empty()) address = "loopback:" + SystemRandom().Bits<struct AddressTag>().Hex();
  MutexLock lock(&Registry::Get().mutex);
  if (!Registry::Get().owners.emplace(address, owner).second) {
    return absl::AlreadyExistsError(absl::StrCat("a target has the address ", address));
  }
  return std::make_unique<LoopbackTarget>(std::move(address), std::move(owner));
}

std::unique_ptr<Fabric> OpenLoopbackFabric() { return std::make_unique<LoopbackFabric>(); }

}  // namespace engram::fabric
