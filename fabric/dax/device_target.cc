#include "fabric/dax/device_target.h"

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "engram/session.h"
#include "fabric/mapped/mapped_info.h"

namespace engram::fabric::dax {
namespace {

class DeviceTarget final : public Target {
 public:
  explicit DeviceTarget(DeviceTargetOptions options)
      : options_(std::move(options)), device_(*options_.device) {
    thread_ = std::thread([this] { Run(); });
  }
  ~DeviceTarget() override { DeviceTarget::Stop(); }

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override {
    return {info_.kind, FormatDeviceAddress(device_.uuid()), info_.one_sided, info_.offloaded,
            device_.nonce()};
  }
  void SetIncarnation(Incarnation incarnation) override {
    Judge(device_.SetIncarnation(incarnation));
  }

  bool Reaches(const Slab& slab) const override {
    const DaxDevice& on = *device_.memory();
    return slab.data() >= on.data() && slab.data() < on.data() + on.description().bytes;
  }
  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override {
    if (auto status = CheckExposed(memory); !status.ok()) return status;
    const DaxDevice& on = *device_.memory();
    if (!Reaches(*memory.slab)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a slab that is not on ", on.description().path));
    }
    const auto offset = static_cast<std::uint64_t>(memory.slab->data() - on.data()) + memory.offset;
    const auto key = device_.Publish(offset, memory.length, memory.shard);
    if (!key.ok()) {
      Judge(key.status());
      return key.status();
    }
    return ExposedRegion{offset, memory.length, *key};
  }
  void Hide(std::uint64_t key) override { device_.Withdraw(key); }

  void Admit(const SessionToken& session) override {
    MutexLock lock(&mutex_);
    sessions_.insert(session);
  }
  void Dismiss(const SessionToken& session) override {
    MutexLock lock(&mutex_);
    if (sessions_.erase(session) > 0) last_dismissed_ = SystemClock::Get().Now();
  }
  void Allow(const SessionToken&, std::uint64_t) override {}
  void Disallow(const SessionToken&, std::uint64_t) override {}

  void Stop() override {
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      stop_ = true;
    }
    thread_.join();
    device_.End(LeasesAreOver());
  }

 private:
  void Run() {
    for (;;) {
      {
        MutexLock lock(&mutex_);
        if (mutex_.AwaitFor(options_.beat, [this] {
              mutex_.AssertHeld();
              return stop_;
            })) {
          return;
        }
      }
      if (const absl::Status beat = device_.Beat(); !beat.ok()) {
        Judge(beat);
        return;
      }
    }
  }

  void Judge(const absl::Status& status) {
    if (absl::IsAborted(status) && options_.lost) options_.lost(status);
  }

  // A session may be dismissed before its lease ends (a client that was revoked).
  bool LeasesAreOver() {
    MutexLock lock(&mutex_);
    if (!sessions_.empty()) return false;
    const Duration lease = device_.lease();
    return !last_dismissed_ ||
           SystemClock::Get().Now() - *last_dismissed_ >= lease + LeaseMargin(lease);
  }

  const DeviceTargetOptions options_;
  OwnedDevice& device_;
  const FabricInfo info_ = MappedInfo();
  Mutex mutex_;
  std::set<SessionToken> sessions_ ABSL_GUARDED_BY(mutex_);
  std::optional<Instant> last_dismissed_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> OpenDeviceTarget(const DeviceTargetOptions& options) {
  if (absl::Status claimed = options.device->Claim(); !claimed.ok()) return claimed;
  return std::make_unique<DeviceTarget>(options);
}

}  // namespace engram::fabric::dax
