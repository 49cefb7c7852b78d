#include "fabric/metered/metered_fabric.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

namespace engram::fabric {
namespace {

// One writer, so a load and a store do: no locked instruction on the path.
class Count {
 public:
  void Add(std::uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  std::uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

std::size_t Bucket(Duration latency) {
  if (latency <= LatencyBound(0)) return 0;
  const auto us_less = static_cast<std::uint64_t>(latency.count() - 1) / 1000;
  return std::min<std::size_t>(std::bit_width(us_less), kLatencyBuckets - 1);
}

}  // namespace

class MeteredFabric::Counters {
 public:
  Count batches, pushed_back, reads, bytes, latency_ns;
  std::array<Count, kReadStatuses> ended;
  std::array<Count, kLatencyBuckets> latency;

  void AddTo(FabricTotals& totals) const {
    totals.batches += batches.Get();
    totals.pushed_back += pushed_back.Get();
    totals.reads += reads.Get();
    totals.bytes += bytes.Get();
    totals.latency_ns += latency_ns.Get();
    for (std::size_t i = 0; i < kReadStatuses; ++i) totals.ended[i] += ended[i].Get();
    for (std::size_t i = 0; i < kLatencyBuckets; ++i) totals.latency[i] += latency[i].Get();
  }
};

namespace {

class MeteredQueue final : public ReadQueue {
 public:
  MeteredQueue(std::unique_ptr<ReadQueue> inner, std::shared_ptr<MeteredFabric::Counters> counters,
               std::size_t depth, const Clock& clock)
      : counters_(std::move(counters)),
        clock_(clock),
        started_(std::bit_ceil(depth)),
        inner_(std::move(inner)) {}

  std::size_t Submit(std::span<const ReadOp> ops) override {
    if (ops.empty()) return inner_->Submit(ops);
    // Never more batches under way than there are places to remember them.
    if (newest_ - oldest_ == started_.size()) return 0;
    const Instant now = clock_.Now();
    const std::size_t accepted = inner_->Submit(ops);
    if (accepted < ops.size()) counters_->pushed_back.Add(1);
    if (accepted == 0) return 0;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < accepted; ++i) bytes += ops[i].length;
    counters_->batches.Add(1);
    counters_->reads.Add(accepted);
    counters_->bytes.Add(bytes);
    started_[newest_++ & (started_.size() - 1)] = {now, accepted};
    return accepted;
  }

  std::size_t Poll(std::span<ReadCompletion> out) override {
    const std::size_t count = inner_->Poll(out);
    if (count == 0) return 0;
    std::array<std::uint64_t, kReadStatuses> ended{};
    for (const ReadCompletion& done : out.first(count)) {
      ended[static_cast<std::size_t>(done.status)] += 1;
    }
    for (std::size_t i = 0; i < kReadStatuses; ++i) {
      if (ended[i] > 0) counters_->ended[i].Add(ended[i]);
    }
    CountLatency(count, clock_.Now());
    return count;
  }

  int ArmWait() override { return inner_->ArmWait(); }
  void Abandon(PeerId peer) override { inner_->Abandon(peer); }
  void Close() override { inner_->Close(); }

 private:
  struct Batch {
    Instant start;
    std::size_t left = 0;
  };

  void CountLatency(std::size_t count, Instant now) {
    while (count > 0 && oldest_ != newest_) {
      Batch& batch = started_[oldest_ & (started_.size() - 1)];
      const std::size_t some = std::min(count, batch.left);
      const Duration latency = now - batch.start;
      counters_->latency[Bucket(latency)].Add(some);
      counters_->latency_ns.Add(static_cast<std::uint64_t>(latency.count()) * some);
      batch.left -= some;
      count -= some;
      if (batch.left == 0) ++oldest_;
    }
  }

  const std::shared_ptr<MeteredFabric::Counters> counters_;
  const Clock& clock_;
  std::vector<Batch> started_;  // a power of two; [oldest_, newest_) are under way
  std::size_t oldest_ = 0;
  std::size_t newest_ = 0;
  const std::unique_ptr<ReadQueue> inner_;
};

}  // namespace

MeteredFabric::MeteredFabric(std::unique_ptr<Fabric> inner, const Clock& clock)
    : inner_(std::move(inner)), clock_(clock) {}

MeteredFabric::~MeteredFabric() = default;

FabricTotals MeteredFabric::Read() const {
  MutexLock lock(&mutex_);
  FabricTotals totals = closed_;
  for (const auto& counters : counters_) counters->AddTo(totals);
  return totals;
}

absl::StatusOr<PeerId> MeteredFabric::AddPeer(const PeerAddress& address, Instant deadline) {
  return inner_->AddPeer(address, deadline);
}

void MeteredFabric::RemovePeer(PeerId peer) { inner_->RemovePeer(peer); }

absl::StatusOr<RemoteRegion> MeteredFabric::Import(const RemoteRegion& granted) {
  return inner_->Import(granted);
}

void MeteredFabric::Release(const RemoteRegion& imported) { inner_->Release(imported); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> MeteredFabric::Register(std::span<std::byte> memory,
                                                                      MemoryKind kind) {
  return inner_->Register(memory, kind);
}

absl::StatusOr<std::unique_ptr<ReadQueue>> MeteredFabric::OpenQueue(const QueueOptions& options) {
  auto inner = inner_->OpenQueue(options);
  if (!inner.ok()) return inner.status();
  const std::uint32_t depth = std::clamp(options.depth, 1u, info().max_outstanding);
  auto counters = std::make_shared<Counters>();
  MutexLock lock(&mutex_);
  std::erase_if(counters_, [this](const std::shared_ptr<Counters>& one) {
    mutex_.AssertHeld();
    if (one.use_count() > 1) return false;
    one->AddTo(closed_);
    return true;
  });
  counters_.push_back(counters);
  return std::make_unique<MeteredQueue>(*std::move(inner), std::move(counters), depth, clock_);
}

}  // namespace engram::fabric
