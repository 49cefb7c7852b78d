#include "fabric/ofi/ofi_target.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::fabric::ofi {
namespace {

constexpr int kBlockMs = 20;
constexpr long kNapNs = 50'000;
// Turns of a provider that cannot block before the thread naps.
constexpr int kTurnsBeforeNap = 2000;

}  // namespace

absl::StatusOr<std::unique_ptr<OfiTarget>> OfiTarget::Open(const OfiTargetOptions& options) {
  auto provider = Provider::Open(options.provider);
  if (!provider.ok()) return provider.status();
  std::unique_ptr<OfiTarget> target(new OfiTarget);
  target->options_ = options;
  target->provider_ = *std::move(provider);
  target->info_ = target->provider_->Describe();
  target->wait_ = options.wait;
  auto endpoint = target->provider_->OpenEndpoint(1024, options.wait.spin != Duration::max(),
                                                  &target->can_block_);
  if (!endpoint.ok()) return endpoint.status();
  target->endpoint_ = *std::move(endpoint);
  target->bound_ = target->provider_->bound();
  target->hello_.incarnation = options.incarnation.value();
  auto hello =
      target->provider_->Register(std::as_bytes(std::span(&target->hello_, 1)), FI_REMOTE_READ);
  if (!hello.ok()) return hello.status();
  target->hello_registration_ = *std::move(hello);

  TargetLocation location;
  location.provider = target->provider_->name();
  location.incarnation = options.incarnation;
  location.hello_address = target->hello_registration_.address;
  location.hello_key = target->hello_registration_.key;
  location.name.resize(256);
  std::size_t bytes = location.name.size();
  if (int error = fi_getname(&target->endpoint_.ep->fid, location.name.data(), &bytes);
      error != 0) {
    return target->provider_->Failed("fi_getname", error);
  }
  location.name.resize(bytes);
  {
    MutexLock lock(&target->mutex_);
    target->location_ = std::move(location);
  }
  target->thread_ = std::thread([raw = target.get()] { raw->Progress(); });
  return target;
}

OfiTarget::~OfiTarget() { Stop(); }

PathAddress OfiTarget::address() const {
  MutexLock lock(&mutex_);
  return {FabricKind::kOfi, FormatLocation(location_), true, provider_->offloaded(), 0};
}

void OfiTarget::SetIncarnation(Incarnation incarnation) {
  MutexLock lock(&mutex_);
  // Nobody reads it before the address that names this incarnation is known.
  hello_.incarnation = incarnation.value();
  location_.incarnation = incarnation;
}

absl::StatusOr<std::unique_ptr<Target>> OfiTarget::OpenDomain() const {
  OfiTargetOptions options = options_;
  {
    MutexLock lock(&mutex_);
    options.incarnation = location_.incarnation;
  }
  return Open(options);
}

bool OfiTarget::Moved() const {
  const auto now = options_.provider.resolve(options_.provider);
  return now.ok() && !bound_.device.empty() && now->device == bound_.device &&
         now->node != bound_.node;
}

void OfiTarget::Progress() {
  const bool spins = wait_.spin == Duration::max();
  int idle = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    turns_.fetch_add(1, std::memory_order_acq_rel);
    fi_cq_entry entries[8];
    // The target posts nothing: an entry can only be the end of a connection.
    fi_cq_err_entry error{};
    if (fi_cq_read(endpoint_.cq.get(), entries, 8) == -FI_EAVAIL) {
      fi_cq_readerr(endpoint_.cq.get(), &error, 0);
    }
    if (spins || ++idle < kTurnsBeforeNap) continue;
    if (can_block_) {
      fi_cq_sread(endpoint_.cq.get(), entries, 8, nullptr, kBlockMs);
    } else {
      idle = 0;
      const timespec nap{0, kNapNs};
      nanosleep(&nap, nullptr);
    }
  }
}

absl::StatusOr<ExposedRegion> OfiTarget::Expose(const ExposedMemory& memory) {
  if (memory.slab == nullptr || memory.offset > memory.slab->bytes() ||
      memory.slab->bytes() - memory.offset < memory.length || memory.length == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ofi cannot expose ", memory.length, " bytes at offset ", memory.offset, " of a slab of ",
        memory.slab == nullptr ? 0 : memory.slab->bytes(), " bytes: the range is outside of it"));
  }
  auto registration =
      provider_->Register({memory.slab->data() + memory.offset, memory.length}, FI_REMOTE_READ);
  if (!registration.ok()) return registration.status();
  const ExposedRegion region{registration->address, memory.length, registration->key};
  MutexLock lock(&mutex_);
  regions_.emplace(region.key, *std::move(registration));
  return region;
}

void OfiTarget::Hide(std::uint64_t key) {
  {
    MutexLock lock(&mutex_);
    if (regions_.erase(key) == 0) return;
  }
  // A NIC refuses what is deregistered; a program may be in the middle of answering.
  if (!info_.target_progress) return;
  const std::uint64_t before = turns_.load(std::memory_order_acquire);
  while (turns_.load(std::memory_order_acquire) < before + 2 &&
         !stop_.load(std::memory_order_acquire)) {
    if (can_block_) fi_cq_signal(endpoint_.cq.get());
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
}

void OfiTarget::Stop() {
  if (stop_.exchange(true)) return;
  if (thread_.joinable()) thread_.join();
  endpoint_.ep.reset();
  endpoint_.cq.reset();
  endpoint_.av.reset();
}

}  // namespace engram::fabric::ofi
