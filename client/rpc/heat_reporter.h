// Tells the controller, at an interval that the controller sets, what the readers of a pool's
// tables have read. A report that cannot be delivered is dropped: heat is a hint, and reads never
// wait for it. One duty thread of its own. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/read_heat.h"
#include "client/rpc/duty_loop.h"
#include "client/rpc/pool.h"
#include "engram/clock.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/v1/placement.pb.h"

namespace engram::client {

struct TakenHeat {
  TableUid table;
  std::vector<std::uint64_t> shards;
  std::vector<ReadHeat::Ngram> ngrams;
  std::string name, asked;  // of the table: its name, and the version or alias it was opened by
};

class HeatReporter {
 public:
  // Ends within a second whatever happens.
  using Call = std::function<absl::Status(const v1::ReportHeatRequest&, v1::ReportHeatResponse*)>;

  HeatReporter(std::string client, std::string tenant, std::uint64_t process, Call call);

  ~HeatReporter();  // tells the controller that nothing is open any more, if it can be told

  // `take` is called until Remove returns; it must not call back. What is open is reported at once.
  void Add(const void* table, std::function<TakenHeat()> take);
  void Remove(const void* table);
  // As the last answer said.
  TenantRate tenant_rate() const;

 private:
  // The loop's thread: reports when it is time; returns when it is next.
  Instant Report(Instant now);
  // False: there is nothing to say.
  bool Fill(v1::ReportHeatRequest* request);
  void Send(v1::ReportHeatRequest request);
  void Hurry();

  const std::string client_, tenant_;
  const std::uint64_t process_;
  const Call call_;
  // The loop's thread only.
  std::uint64_t sequence_ = 0;
  Duration every_ = std::chrono::seconds(2);  // until the controller says otherwise
  Instant last_, next_;
  bool told_open_ = false;  // the last report had open tables

  mutable Mutex mutex_;
  TenantRate tenant_rate_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, std::function<TakenHeat()>> tables_ ABSL_GUARDED_BY(mutex_);
  DutyLoop loop_;  // goes first
};

}  // namespace engram::client
