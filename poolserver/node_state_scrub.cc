// The scrubber of NodeState: see node_state.h.
#include <algorithm>

#include "engram/check.h"
#include "poolserver/node_state.h"
#include "poolserver/rate_limit.h"

namespace engram::poolserver {
namespace {

// Short enough that a retirement never waits long for the scrubber.
constexpr std::uint64_t kScrubSliceBytes = std::uint64_t{1} << 20;
constexpr Duration kScrubPause = std::chrono::seconds(1);

}  // namespace

// The replica at or after the place where the last slice ended that serves; end() when none does.
std::map<ShardKey, Replica>::iterator NodeState::NextToScrub() {
  const auto serves = [](const auto& entry) {
    return entry.second.step() == Replica::Step::kServing && !entry.second.block_crcs().empty();
  };
  auto it = replicas_.lower_bound(scrub_shard_);
  if (it != replicas_.end() && it->first == scrub_shard_ && serves(*it) &&
      scrub_block_ < it->second.block_crcs().size()) {
    return it;
  }
  if (it != replicas_.end() && it->first == scrub_shard_) ++it;
  scrub_block_ = 0;
  it = std::find_if(it, replicas_.end(), serves);
  return it != replicas_.end() ? it : std::find_if(replicas_.begin(), replicas_.end(), serves);
}

void NodeState::Scrub(Instant now, Actions& out) {
  if (options_.scrub_bytes_per_second == 0 || scrubbing_ || now < next_scrub_) return;
  const auto it = NextToScrub();
  if (it == replicas_.end()) {
    next_scrub_ = now + kScrubPause;
    return;
  }
  const ShardLayout& layout = layouts_.at(it->first.table);
  const std::uint64_t block_bytes = std::uint64_t{layout.stride()} * kBlockRows;
  const std::uint64_t wanted = std::max<std::uint64_t>(1, kScrubSliceBytes / block_bytes);
  const std::span<const std::uint32_t> crcs = it->second.block_crcs();
  const std::uint64_t end = std::min<std::uint64_t>(crcs.size(), scrub_block_ + wanted);
  ENGRAM_CHECK(it->second.StartOwnRead());
  scrubbing_ = true;
  const std::uint64_t bytes = (end - scrub_block_) * block_bytes;
  counters_.scrubbed_bytes += bytes;
  next_scrub_ = now + TimeFor(bytes, options_.scrub_bytes_per_second);
  out.push_back(ScrubSlice{it->first,
                           scrub_block_,
                           {crcs.begin() + static_cast<std::ptrdiff_t>(scrub_block_),
                            crcs.begin() + static_cast<std::ptrdiff_t>(end)},
                           it->second.tier()});
  scrub_shard_ = it->first;
  scrub_block_ = end;
}

void NodeState::On(Instant, const SliceScrubbed& event, Actions& out) {
  const auto it = replicas_.find(event.shard);
  ENGRAM_CHECK(it != replicas_.end());
  Replica& replica = it->second;
  scrubbing_ = false;
  replica.FinishOwnRead(event.tier);
  if (!event.status.ok() && replica.step() == Replica::Step::kServing) {
    ++counters_.scrubs_unsound;
    replica.Suspect(event.status);
    Drain(replica, out);
    return;
  }
  HideIfUnread(replica, out);
}

}  // namespace engram::poolserver
