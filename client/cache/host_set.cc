#include "client/cache/host_set.h"

#include "client/cache/host_slot.h"

namespace engram::client {
namespace {

constexpr std::uint32_t kMostUses = 3;
constexpr int kMostLooks = 24;

std::uint32_t UsesOf(std::uint32_t state) { return state & 3; }
HostSet::Part PartIn(std::uint32_t state) { return static_cast<HostSet::Part>(state >> 2 & 3); }
std::uint32_t AgeOf(std::uint32_t state) { return state >> 4; }
std::uint32_t StateOf(std::uint32_t uses, HostSet::Part part, std::uint32_t age) {
  return uses | part << 2 | age << 4;
}

}  // namespace

void HostSet::Use(std::uint32_t way) {
  std::uint32_t state = states[way].load(kRelaxed);
  if (UsesOf(state) < kMostUses) states[way].compare_exchange_strong(state, state + 1, kRelaxed);
}

HostSet::Part HostSet::PartOf(std::uint32_t way) const {
  return PartIn(states[way].load(kRelaxed));
}

std::uint32_t HostSet::Count(Part part) const {
  std::uint32_t count = 0;
  for (std::uint32_t way = 0; way < kWays; ++way)
    count += tags[way].load(kRelaxed) != 0 && PartIn(states[way].load(kRelaxed)) == part ? 1 : 0;
  return count;
}

// Ages wrap; they are compared by how long ago they were given.
std::uint32_t HostSet::Oldest(Part part) const {
  const std::uint32_t now = clock.load(kRelaxed);
  std::uint32_t oldest = kNoWay, longest = 0;
  for (std::uint32_t way = 0; way < kWays; ++way) {
    const std::uint32_t state = states[way].load(kRelaxed);
    if (tags[way].load(kRelaxed) == 0 || PartIn(state) != part) continue;
    const std::uint32_t ago = (now - AgeOf(state)) & 0x0fffffff;
    if (oldest != kNoWay && ago <= longest) continue;
    oldest = way;
    longest = ago;
  }
  return oldest;
}

HostSet::Part HostSet::VictimPart(Part wanted) const {
  const std::uint32_t bulk = Count(kBulk), probation = Count(kProbation), main = Count(kMain);
  if (bulk > kMostBulk || (wanted == kBulk && bulk == kMostBulk)) return kBulk;
  if (probation > kMostProbation || (main == 0 && probation > 0)) return kProbation;
  return main > 0 ? kMain : kBulk;
}

std::uint32_t HostSet::MakeRoom(Part wanted, bool* evicted) {
  *evicted = false;
  for (std::uint32_t way = 0; way < kWays; ++way) {
    if (tags[way].load(kRelaxed) == 0) return way;
  }
  for (int looks = 0;; ++looks) {
    const Part part = VictimPart(wanted);
    const std::uint32_t way = Oldest(part);
    // Others changed the set meanwhile, or everything is pinned.
    if (way == kNoWay) return kNoWay;
    const std::uint32_t state = states[way].load(kRelaxed);
    if (UsesOf(state) > 0 && looks < kMostLooks) {
      const std::uint32_t uses = part == kMain ? UsesOf(state) - 1 : 0;
      states[way].store(StateOf(uses, kMain, clock.fetch_add(1, kRelaxed) + 1), kRelaxed);
      continue;
    }
    const std::uint32_t tag = tags[way].exchange(0, kRelaxed);
    if (part != kBulk) ghosts[next_ghost.fetch_add(1, kRelaxed) % kGhosts].store(tag, kRelaxed);
    *evicted = true;
    return way;
  }
}

bool HostSet::TakeGhost(std::uint32_t tag) {
  for (Word& ghost : ghosts) {
    std::uint32_t wanted = tag;
    if (ghost.load(kRelaxed) == tag) return ghost.compare_exchange_strong(wanted, 0, kRelaxed);
  }
  return false;
}

void HostSet::Place(std::uint32_t way, std::uint32_t tag, Part part) {
  states[way].store(StateOf(0, part, clock.fetch_add(1, kRelaxed) + 1), kRelaxed);
  tags[way].store(tag, std::memory_order_release);
}

}  // namespace engram::client
