#include "client/cache/host_slot.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace engram::client {
namespace {

constexpr int kTimeBits = 40;  // of milliseconds: 34 years
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;

// The thread sanitizer of g++ knows no fences and refuses to compile them; on the processors it
// runs on, keeping the compiler from reordering is enough.
void Fence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  std::atomic_signal_fence(order);
#else
  std::atomic_thread_fence(order);
#endif
}

std::uint64_t Milliseconds(Instant now) {
  return static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch())
                 .count()) &
         kTimeMask;
}

bool IsStale(std::uint64_t owner, Instant now) {
  constexpr auto kAfter = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(HostSlot::kStealAfter).count());
  const std::uint64_t since = owner & kTimeMask, at = Milliseconds(now);
  // A time that is yet to come is of another boot.
  return at < since ? since - at > kAfter : at - since >= kAfter;
}

void CopyIn(HostSlot::Word* to, const std::byte* from, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, from += 8, ++to) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    to->store(word, kRelaxed);
  }
  if (bytes == 0) return;
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  to->store(word, kRelaxed);
}

void CopyOut(std::byte* to, const HostSlot::Word* from, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, to += 8, ++from) {
    const std::uint64_t word = from->load(kRelaxed);
    std::memcpy(to, &word, 8);
  }
  if (bytes == 0) return;
  const std::uint64_t word = from->load(kRelaxed);
  std::memcpy(to, &word, bytes);
}

}  // namespace

std::uint64_t HostSlot::OwnerWord(std::uint32_t owner, Instant now) {
  // Never 0, which means nobody.
  return ((std::uint64_t{owner} << 1 | 1) << kTimeBits) | Milliseconds(now);
}

bool HostSlot::Claim(std::uint64_t owner, Instant now) {
  std::uint64_t present = Owner().load(kRelaxed);
  if (present != 0 && !IsStale(present, now)) return false;
  return Owner().compare_exchange_strong(present, owner, std::memory_order_acquire, kRelaxed);
}

std::uint64_t HostSlot::Begin() {
  // A sequence that is odd already is that of a writer which was killed, or stopped: it must not
  // find it again.
  const std::uint64_t odd = (Sequence().load(kRelaxed) + 1) | 1;
  Sequence().store(odd, kRelaxed);
  Fence(std::memory_order_release);
  return odd;
}

void HostSlot::WriteRow(std::uint32_t index, RowId id, const std::byte* bytes, std::uint64_t seal) {
  IdOf(index)->store(id.value(), kRelaxed);
  SealOf(index)->store(seal, kRelaxed);
  CopyIn(BytesOf(index), bytes, shape_.row_bytes);
}

bool HostSlot::Publish(std::uint32_t rows, std::uint64_t sequence, std::uint64_t owner) {
  if (Owner().load(kRelaxed) != owner) return false;
  Rows().store(rows, kRelaxed);
  words_[3].store(0, kRelaxed);
  const bool ours = Sequence().compare_exchange_strong(sequence, sequence + 1,
                                                       std::memory_order_release, kRelaxed);
  Release(owner);
  return ours;
}

void HostSlot::Release(std::uint64_t owner) {
  Owner().compare_exchange_strong(owner, 0, std::memory_order_release, kRelaxed);
}

bool HostSlot::SameIds(std::span<const RowId> ids) const {
  if (Rows().load(kRelaxed) != ids.size() || ids.size() > shape_.unit_rows) return false;
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    if (IdOf(i)->load(kRelaxed) != ids[i].value()) return false;
  }
  return true;
}

HostSlot::Found HostSlot::Read(std::span<const RowId> ids, std::byte* const* out,
                               const RowSealer& sealer) const {
  const std::uint64_t before = Sequence().load(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0 || !SameIds(ids)) return Found::kOther;
  std::array<std::uint64_t, kMostUnitRows> seals;
  std::array<const std::byte*, kMostUnitRows> rows;
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    CopyOut(out[i], BytesOf(i), shape_.row_bytes);
    seals[i] = SealOf(i)->load(kRelaxed);
    rows[i] = out[i];
  }
  Fence(std::memory_order_acquire);
  if (Sequence().load(kRelaxed) != before) return Found::kOther;
  const std::size_t count = ids.size();
  const std::size_t failed =
      sealer.CheckBatch(ids, std::span(rows).first(count), std::span(seals).first(count));
  return failed == 0 ? Found::kHit : Found::kDamaged;
}

bool HostSlot::Holds(std::span<const RowId> ids) const {
  const std::uint64_t before = Sequence().load(std::memory_order_acquire);
  return before != 0 && before % 2 == 0 && SameIds(ids);
}

std::size_t HostSlot::Ids(std::span<RowId> ids) const {
  const std::uint64_t before = Sequence().load(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0) return 0;
  const std::size_t count = std::min<std::size_t>(Rows().load(kRelaxed), ids.size());
  for (std::uint32_t i = 0; i < count; ++i) ids[i] = RowId(IdOf(i)->load(kRelaxed));
  Fence(std::memory_order_acquire);
  return Sequence().load(kRelaxed) == before ? count : 0;
}

}  // namespace engram::client
