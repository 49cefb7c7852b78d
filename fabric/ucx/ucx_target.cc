#include "fabric/ucx/ucx_target.h"

#include <utility>

#include "fabric/copy.h"

namespace engram::fabric::ucx {
namespace {

constexpr Duration kSleepAtMost = std::chrono::seconds(1);
// For the readers to be told that this is the end.
constexpr Duration kStopAtMost = std::chrono::seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTarget>> UcxTarget::Open(const UcxTargetOptions& options) {
  auto transport = Transport::Open(options.transport);
  if (!transport.ok()) return transport.status();
  std::unique_ptr<UcxTarget> target(new UcxTarget);
  target->options_ = options;
  target->transport_ = *std::move(transport);
  target->info_ = target->transport_->Describe();
  target->wait_ = options.wait;
  target->SetIncarnation(options.incarnation);
  auto reception = Reception::Open(target->transport_, options.transport.host, target.get());
  if (!reception.ok()) return reception.status();
  target->reception_ = *std::move(reception);
  target->address_kind_ = target->reception_->kind();
  target->address_ = target->reception_->address();
  target->thread_ = std::thread([raw = target.get()] { raw->Serve(); });
  return target;
}

UcxTarget::~UcxTarget() { Stop(); }

PathAddress UcxTarget::address() const {
  MutexLock lock(&mutex_);
  return {FabricKind::kUcx,
          FormatLocation({transport_->name(), incarnation_, address_kind_, address_}),
          info_.one_sided, info_.offloaded, 0};
}

void UcxTarget::SetIncarnation(Incarnation incarnation) {
  MutexLock lock(&mutex_);
  incarnation_ = incarnation;
}

absl::StatusOr<std::unique_ptr<Target>> UcxTarget::OpenDomain() const {
  if (!info_.bearer_keys) return Target::OpenDomain();
  UcxTargetOptions options = options_;
  {
    MutexLock lock(&mutex_);
    options.incarnation = incarnation_;
  }
  return Open(options);
}

absl::StatusOr<ExposedRegion> UcxTarget::Expose(const ExposedMemory& memory) {
  if (absl::Status status = CheckExposed(memory); !status.ok()) return status;
  Region region;
  region.first = memory.slab->data() + memory.offset;
  if (transport_->uses_get()) {
    auto handle = transport_->Register({region.first, memory.length},
                                       UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ);
    if (!handle.ok()) return handle.status();
    auto packed = transport_->PackKey(*handle);
    if (!packed.ok()) return packed.status();
    region.memory = *std::move(handle);
    region.packed_key = *std::move(packed);
    region.at.address = reinterpret_cast<std::uint64_t>(region.first);
  }
  region.at.length = memory.length;
  MutexLock lock(&mutex_);
  region.at.key = random_.Next();
  const ExposedRegion exposed = region.at;
  regions_.emplace(exposed.key, std::move(region));
  return exposed;
}

void UcxTarget::Hide(std::uint64_t key) {
  Region hidden;            // unregistered when the lock is released
  MutexLock lock(&mutex_);  // and no answer is being written
  const auto found = regions_.find(key);
  if (found == regions_.end()) return;
  hidden = std::move(found->second);
  regions_.erase(found);
  sessions_.Forget(key);
}

void UcxTarget::Admit(const SessionToken& session) {
  MutexLock lock(&mutex_);
  sessions_.Admit(session);
}

void UcxTarget::Dismiss(const SessionToken& session) {
  MutexLock lock(&mutex_);
  sessions_.Dismiss(session);
  if (stopped_) return;
  dismissed_.push_back(session);
  reception_->Wake();
}

void UcxTarget::Allow(const SessionToken& session, std::uint64_t key) {
  MutexLock lock(&mutex_);
  sessions_.Allow(session, key);
}

void UcxTarget::Disallow(const SessionToken& session, std::uint64_t key) {
  MutexLock lock(&mutex_);
  sessions_.Disallow(session, key);
}

Outcome UcxTarget::Judge(const Ask& hello) {
  MutexLock lock(&mutex_);
  if (hello.incarnation != incarnation_.value()) return Outcome::kOtherIncarnation;
  return sessions_.Admits(hello.token) ? Outcome::kOk : Outcome::kNoSession;
}

Received<Answer> UcxTarget::Find(const Ask& import) {
  Received<Answer> out;
  out.head.verb = Verb::kImport;
  out.head.request = import.request;
  MutexLock lock(&mutex_);
  const auto region = regions_.find(import.request);
  if (region == regions_.end() || region->second.memory == nullptr ||
      !sessions_.Allows(import.token, import.request)) {
    out.head.outcome = Outcome::kNoSuchKey;
    return out;
  }
  out.head.address = region->second.at.address;
  out.head.length = region->second.at.length;
  out.tail = region->second.packed_key;
  return out;
}

const std::byte* UcxTarget::MemoryOf(const SessionToken& session, const Range& range) const {
  const auto found = regions_.find(range.key);
  if (found == regions_.end() || !sessions_.Allows(session, range.key)) return nullptr;
  const Region& region = found->second;
  const std::uint64_t offset = range.offset - region.at.address;
  if (offset > region.at.length || region.at.length - offset < range.length) return nullptr;
  return region.first + offset;
}

std::vector<std::byte> UcxTarget::Read(const Ask& read, std::span<const Range> ranges) {
  std::uint64_t wanted = 0;
  for (const Range& range : ranges) wanted += range.length;
  const bool fits = wanted <= kMostBytes || (ranges.size() == 1 && wanted <= kMostRangeBytes);
  std::vector<std::byte> tail(ranges.size() + (fits ? wanted : 0));
  if (!fits) return tail;
  std::vector<const std::byte*> from(ranges.size());
  std::byte* to = tail.data() + ranges.size();
  MutexLock lock(&mutex_);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    from[i] = ranges[i].length > 0 ? MemoryOf(read.token, ranges[i]) : nullptr;
    if (from[i] != nullptr) PrefetchBytes(from[i], ranges[i].length);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (from[i] == nullptr) continue;
    tail[i] = std::byte{1};
    CopyPiece(to, from[i], ranges[i].length);
    to += ranges[i].length;
  }
  tail.resize(static_cast<std::size_t>(to - tail.data()));
  return tail;
}

bool UcxTarget::SeeOffDismissed() {
  std::vector<SessionToken> dismissed;
  {
    MutexLock lock(&mutex_);
    dismissed.swap(dismissed_);
  }
  for (const SessionToken& session : dismissed) reception_->Dismiss(session);
  return !dismissed.empty();
}

void UcxTarget::Serve() {
  const SystemClock clock;
  Instant idle_from = clock.Now();
  while (!stop_.load(std::memory_order_acquire)) {
    const bool dismissed = SeeOffDismissed();
    if (reception_->Turn() || dismissed) {
      idle_from = clock.Now();
    } else if (wait_.spin != Duration::max() && clock.Now() - idle_from >= wait_.spin) {
      reception_->Sleep(kSleepAtMost);
    }
  }
  reception_->DismissAll();
  const Instant limit = clock.Now() + kStopAtMost;
  while (!reception_->empty() && clock.Now() < limit) {
    if (!reception_->Turn()) reception_->Sleep(kSleepAtMost);
  }
}

void UcxTarget::Stop() {
  if (stop_.exchange(true)) return;
  if (thread_.joinable()) {
    reception_->Wake();
    thread_.join();
  }
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  reception_.reset();
}

}  // namespace engram::fabric::ucx
