// Brings replicas into a tier: takes places from its store, fills them from the table's source and
// says, shard by shard, how that ended. A shard is announced once and only whole: sealed, with the
// CRC32C of every block, committed. It neither exposes nor frees anything.
//
// One thread takes loads in order and makes room; a few others read and pack stripes (runs of
// neighbouring shards, read in large sequential pieces), so that disk, memory and processors work
// at the same time. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/mutex.h"
#include "engram/table_spec.h"
#include "poolserver/checkpoints.h"
#include "poolserver/load_source.h"
#include "poolserver/tiers.h"

namespace engram::poolserver {

class Loader {
 public:
  struct Options {
    std::uint32_t threads = 4;  // that read and pack; each has a stripe of scratch memory
    std::uint64_t stripe_bytes = std::uint64_t{8} << 20;
    // Shared with whoever looks at checkpoints before they are loaded.
    std::shared_ptr<Checkpoints> checkpoints = std::make_shared<Checkpoints>();
    std::string name = "load";  // of the threads, at most 10 characters
  };
  // The block CRC32Cs of a shard that is whole, or why it is not. Called once for every shard, from
  // a thread of the loader, after the last byte was written; must not block.
  using Ended = std::function<void(const ShardKey&, absl::StatusOr<std::vector<std::uint32_t>>)>;
  // Tells about a whole load, for logs.
  struct Summary {
    TableName table;
    std::size_t shards = 0;
    std::size_t failed = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;
    std::string granted;  // what the kernel gave for the first slab, for people
  };
  using Finished = std::function<void(const Summary&)>;

  // REQUIRES: the tiers outlive the loader.
  Loader(Options options, const Tiers* tiers, Ended ended, Finished finished = nullptr);
  ~Loader();  // = Stop()

  using OpenSource = std::function<absl::StatusOr<std::unique_ptr<LoadSource>>()>;

  // Takes places of the tier for `shards` and fills them, from what `open` opens: the table's
  // source without one. REQUIRES: none of them is being loaded.
  void Start(const TableRecord& table, std::vector<ShardIndex> shards, Tier tier,
             OpenSource open = nullptr);
  // Gives up a shard: it ends with Cancelled, or whole when it was done already.
  void Cancel(const ShardKey& shard);
  // Gives up everything and joins. Idempotent.
  void Stop();

  std::uint64_t bytes_loaded() const { return bytes_loaded_.load(std::memory_order_relaxed); }

 private:
  struct Load;
  struct Stripe;
  struct Scratch;

  void RunLoads();
  void RunStripes();
  void Prepare(const std::shared_ptr<Load>& load);
  absl::StatusOr<std::unique_ptr<TierStore::Claim>> Reserve(const std::shared_ptr<Load>& load);
  void Queue(const std::shared_ptr<Load>& load, std::span<const TierStore::Taken> taken);
  void FailRest(const std::shared_ptr<Load>& load, const absl::Status& why);
  void Work(Stripe* stripe, Scratch* scratch);
  static absl::Status Fill(Stripe* stripe, Scratch* scratch);
  void EndPart(const std::shared_ptr<Load>& load, ShardIndex shard, std::uint64_t rows,
               const absl::Status& status);
  void End(const std::shared_ptr<Load>& load, ShardIndex shard,
           absl::StatusOr<std::vector<std::uint32_t>> result);
  bool GivenUp(const ShardKey& shard) const;
  static bool HasFailed(Load* load, ShardIndex shard);

  const Options options_;
  const Tiers* const tiers_;
  const Ended ended_;
  const Finished finished_;
  std::atomic<std::uint64_t> bytes_loaded_{0};

  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Load>> loads_ ABSL_GUARDED_BY(mutex_);
  std::deque<Stripe> stripes_ ABSL_GUARDED_BY(mutex_);
  std::set<ShardKey> active_ ABSL_GUARDED_BY(mutex_);
  std::set<ShardKey> given_up_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace engram::poolserver
