#include "fabric/stream/stream_target.h"

#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fabric/stream/socket.h"

namespace engram::fabric::stream {
namespace {

bool IsEveryInterface(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<std::string> Advertised(const StreamTargetOptions& options,
                                       const SocketAddress& listened, int fd) {
  if (listened.unix_path) return BoundAddress(fd, listened, "");
  if (options.advertise.empty() && IsEveryInterface(listened.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream listens on every interface (", options.listen,
        ") but no advertised address is set: clients would not know where to connect; set one"));
  }
  const std::string& wanted = options.advertise;
  const std::size_t colon = wanted.rfind(':');
  const bool bare_v6 = wanted.find(':') != colon && wanted.back() != ']' && wanted.front() != '[';
  const bool has_port = colon != std::string::npos && wanted.back() != ']' && !bare_v6;
  if (has_port) return wanted;
  return BoundAddress(fd, listened, wanted);
}

}  // namespace

FabricInfo StreamInfo(std::uint32_t max_outstanding) {
  FabricInfo info;
  info.kind = FabricKind::kStream;
  info.provider = "stream";
  info.target_progress = true;
  info.max_op_bytes = kMaxOpBytes;
  info.max_outstanding = max_outstanding;
  info.wrong_key = WrongKey::kFailsRead;
  return info;
}

absl::StatusOr<std::unique_ptr<StreamTarget>> StreamTarget::Open(
    const StreamTargetOptions& options) {
  if (options.threads < 1 || options.threads > 64) {
    return absl::InvalidArgumentError(absl::StrCat("stream threads = ", options.threads,
                                                   ": allowed are 1 to 64; choose one of them"));
  }
  absl::StatusOr<SocketAddress> listen = ParseAddress(options.listen);
  if (!listen.ok()) return listen.status();
  absl::StatusOr<Descriptor> listener = Listen(*listen, options.listen);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::string> advertised = Advertised(options, *listen, listener->get());
  if (!advertised.ok()) return advertised.status();

  std::unique_ptr<StreamTarget> target(new StreamTarget);
  target->info_ = StreamInfo(kMaxRows * kMaxRequestsInFlight);
  target->address_.fabric = FabricKind::kStream;
  target->address_.address = *std::move(advertised);
  if (listen->unix_path) target->unix_path_ = listen->host;
  const PollerOptions poller{options.incarnation, options.wait, options.limits,
                             options.max_connections};
  // Both lanes of a session meet in one poller, which is how urgent overtakes bulk.
  auto route = [pollers = &target->pollers_](const SessionToken& token) {
    return (*pollers)[token.bytes[0] % pollers->size()].get();
  };
  Descriptor accepts = *std::move(listener);  // of the first poller
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    target->pollers_.push_back(std::make_unique<Poller>(
        poller, &target->grants_, &target->throttle_, std::exchange(accepts, {}), route));
  }
  for (auto& each : target->pollers_) each->Start();
  return target;
}

StreamTarget::~StreamTarget() { Stop(); }

void StreamTarget::SetIncarnation(Incarnation incarnation) {
  for (auto& poller : pollers_) poller->SetIncarnation(incarnation);
}

absl::StatusOr<ExposedRegion> StreamTarget::Expose(const ExposedMemory& memory) {
  if (memory.slab == nullptr || memory.offset > memory.slab->bytes() ||
      memory.slab->bytes() - memory.offset < memory.length) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream cannot expose ", memory.length, " bytes at offset ", memory.offset,
                     " of a slab of ", memory.slab == nullptr ? 0 : memory.slab->bytes(),
                     " bytes: the range is outside of it"));
  }
  return ExposeSource(std::make_unique<MemoryRowSource>(memory.slab->data() + memory.offset),
                      memory.length);
}

ExposedRegion StreamTarget::ExposeSource(std::unique_ptr<RowSource> source, std::uint64_t length) {
  return {0, length, grants_.Add(std::move(source), length)};
}

void StreamTarget::Hide(std::uint64_t key) { grants_.Remove(key); }

void StreamTarget::Admit(const SessionToken& session) { grants_.Admit(session); }

void StreamTarget::AdmitFor(const SessionToken& session, const std::string& tenant) {
  grants_.Admit(session, tenant.empty() ? nullptr : throttle_.MeterOf(tenant));
}

void StreamTarget::SetBudgets(std::span<const std::pair<std::string, std::uint64_t>> budgets) {
  throttle_.SetBudgets(SystemClock::Get().Now(), budgets);
  for (auto& poller : pollers_) poller->Wake();
}

void StreamTarget::Dismiss(const SessionToken& session) {
  grants_.Dismiss(session);
  for (auto& poller : pollers_) poller->Wake();
}

void StreamTarget::Allow(const SessionToken& session, std::uint64_t key) {
  grants_.Allow(session, key);
}

void StreamTarget::Disallow(const SessionToken& session, std::uint64_t key) {
  grants_.Disallow(session, key);
}

void StreamTarget::Stop() {
  MutexLock lock(&stop_mutex_);
  if (std::exchange(stopped_, true)) return;
  // The accepting poller first: it is the one that hands connections to the others.
  for (auto& poller : pollers_) poller->Stop();
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
}

LaneCounters StreamTarget::counters(Lane lane) const {
  LaneCounters sum;
  for (const auto& poller : pollers_) {
    const LaneCounters one = poller->counters(lane);
    sum.rows += one.rows;
    sum.messages += one.messages;
  }
  return sum;
}

}  // namespace engram::fabric::stream
