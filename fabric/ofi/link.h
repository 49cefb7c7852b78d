// One peer as one queue sees it: an endpoint, its reads in flight and those not posted yet. A fresh
// endpoint first reads the target's hello region and starts no other read before that has shown the
// incarnation it was opened for. Any error closes the endpoint, which flushes; the next read opens
// another.
// Thread-confined: call from the owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engram/clock.h"
#include "fabric/link_queue.h"
#include "fabric/ofi/ofi_fabric.h"
#include "fabric/ofi/provider.h"

namespace engram::fabric::ofi {

inline constexpr std::uint32_t kMaxBundle = 8;

// The reads of one fi_readmsg: up to the provider's rma_iov_limit.
struct Bundle {
  fi_context2 context;  // first: libfabric gives back its address
  std::array<std::uint64_t, kMaxBundle> cookies;
  std::uint32_t reads = 0;
  std::uint32_t place = 0;  // in the link's list of bundles in flight
  bool is_hello = false;
};

// What a queue has asked of its provider, all links together.
struct PostCounters {
  std::uint64_t messages = 0;     // fi_readmsg calls that were taken
  std::uint64_t doorbells = 0;    // of them without FI_MORE: the end of a chain
  std::uint64_t completions = 0;  // that came
};

class Link final : public ReadLink {
 public:
  Link(std::shared_ptr<const Provider> provider, std::shared_ptr<const OfiPeer> peer,
       Duration connect_timeout, ReadSink* sink, PostCounters* counters);
  ~Link() override;

  void Drive() override;
  void End(ReadStatus status) override;
  void Abandon() override;
  bool active() const override { return waits() || !in_flight_.empty(); }
  // Why the link could not be opened or greeted the last time; ok where nothing is known.
  const absl::Status& trouble() const { return trouble_; }

 private:
  enum class State : std::uint8_t { kClosed, kGreeting, kOpen };

  absl::Status Open();
  bool TryHello();
  void PostWaiting();
  void JudgePushBack();
  // Puts the first reads that wait into one message; returns how many.
  std::size_t Pack();
  bool Collect();
  void FailedRead();
  Bundle* TakeBundle();
  void Retire(Bundle* bundle);
  bool TargetIsGone();
  void Settle();
  bool IsSilent();

  const std::shared_ptr<const Provider> provider_;
  const std::shared_ptr<const OfiPeer> peer_;
  const Duration connect_timeout_;
  const SystemClock clock_{};
  PostCounters* const counters_;  // outlives the link

  State state_ = State::kClosed;
  absl::Status trouble_;
  Instant greet_deadline_;
  Instant stuck_deadline_ = Instant::max();  // nothing in flight and every post pushed back
  Instant next_look_;                        // shm: when to look whether the endpoint is there
  bool gone_ = false;  // the target has closed its endpoint, as seen when it was looked at
  std::uint64_t completed_ = 0;
  std::uint64_t completed_before_ = 0;
  Instant silence_from_;  // shm: since when reads are in flight and none completes
  HelloRegion hello_;
  Registration hello_registration_;
  Endpoint endpoint_;
  fi_addr_t address_ = FI_ADDR_UNSPEC;

  std::vector<Bundle*> in_flight_;
  std::vector<Bundle*> free_;
  std::vector<std::unique_ptr<Bundle>> all_;

  // The message that Pack fills.
  std::array<iovec, kMaxBundle * kMaxLocalSegments> local_;
  std::array<void*, kMaxBundle * kMaxLocalSegments> descriptors_;
  std::array<fi_rma_iov, kMaxBundle> remote_;
  std::size_t locals_ = 0;
};

}  // namespace engram::fabric::ofi
