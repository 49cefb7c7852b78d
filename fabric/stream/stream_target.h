// The owner's side of the stream fabric: listens on TCP or a Unix socket and answers gathers out of
// exposed memory, each range checked against what its session was granted. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engram/mutex.h"
#include "fabric/stream/grants.h"
#include "fabric/stream/poller.h"
#include "fabric/target.h"

namespace engram::fabric::stream {

struct StreamTargetOptions {
  std::string listen = "127.0.0.1:0";  // host:port (0: chosen by the system) or unix:PATH
  // What clients are told instead of the listen host: "host" or "host:port". Needed when listening
  // on every interface.
  std::string advertise = {};
  Incarnation incarnation = {};
  WaitMode wait = {};
  std::uint32_t threads = 1;
  StallLimits limits = {};
  std::uint32_t max_connections = 4096;
};

class StreamTarget final : public Target {
 public:
  // AlreadyExists: the port or path is in use. InvalidArgument: an address or option is wrong.
  static absl::StatusOr<std::unique_ptr<StreamTarget>> Open(const StreamTargetOptions& options);
  ~StreamTarget() override;

  const FabricInfo& info() const override { return info_; }
  PathAddress address() const override { return address_; }

  void SetIncarnation(Incarnation incarnation) override;
  absl::StatusOr<ExposedRegion> Expose(const ExposedMemory& memory) override;
  // The same for rows that do not lie in a slab.
  ExposedRegion ExposeSource(std::unique_ptr<RowSource> source, std::uint64_t length);
  void Hide(std::uint64_t key) override;
  void Admit(const SessionToken& session) override;
  void AdmitFor(const SessionToken& session, const std::string& tenant) override;
  void SetBudgets(std::span<const std::pair<std::string, std::uint64_t>> budgets) override;
  void Dismiss(const SessionToken& session) override;
  void Allow(const SessionToken& session, std::uint64_t key) override;
  void Disallow(const SessionToken& session, std::uint64_t key) override;
  void Stop() override;

  // What each tenant gathered since the start.
  std::vector<TenantUse> tenant_uses() const { return throttle_.Uses(); }

  // Rows and messages answered since the start (engram_gather_rows_total, _messages_total).
  LaneCounters counters(Lane lane) const;

 private:
  StreamTarget() = default;

  FabricInfo info_;
  PathAddress address_;
  std::string unix_path_;
  Grants grants_;
  Throttle throttle_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
};

// What both ends of the fabric say about it.
FabricInfo StreamInfo(std::uint32_t max_outstanding);

}  // namespace engram::fabric::stream
