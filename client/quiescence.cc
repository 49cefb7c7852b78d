#include "client/quiescence.h"

#include <algorithm>

#include "engram/check.h"

namespace engram::client {

// The order that all of this rests on: a reader stores its version, then looks at current_ again; a
// publisher raises current_, then looks at the slots. Both are sequentially consistent, so either
// the reader sees the new version and starts over, or the publisher sees the reader.

RouteVersion Quiescence::Publish() {
  return RouteVersion(current_.fetch_add(1, std::memory_order_seq_cst) + 1);
}

RouteVersion Quiescence::Oldest() const {
  std::uint64_t oldest = current_.load(std::memory_order_seq_cst);
  MutexLock lock(&mutex_);
  for (const Slot* slot : slots_) {
    oldest = std::min(oldest, slot->oldest.load(std::memory_order_seq_cst));
  }
  return RouteVersion(oldest);
}

bool Quiescence::Past(RouteVersion version) const {
  ENGRAM_CHECK(version <= current());
  return Oldest() >= version;
}

void Quiescence::Add(const Slot* slot) {
  MutexLock lock(&mutex_);
  slots_.push_back(slot);
}

void Quiescence::Remove(const Slot* slot) {
  MutexLock lock(&mutex_);
  std::erase(slots_, slot);
}

QuiescenceReader::QuiescenceReader(Quiescence* quiescence) : quiescence_(quiescence) {
  quiescence_->Add(&slot_);
}

QuiescenceReader::~QuiescenceReader() {
  ENGRAM_CHECK(open_ == 0);
  quiescence_->Remove(&slot_);
}

RouteVersion QuiescenceReader::Enter() {
  ++open_;
  std::uint64_t now = quiescence_->current_.load(std::memory_order_seq_cst);
  if (versions_ == 0) {
    for (std::uint64_t stored = 0; stored != now;) {
      slot_.oldest.store(now, std::memory_order_seq_cst);
      stored = now;
      now = quiescence_->current_.load(std::memory_order_seq_cst);
    }
    passes_[versions_++] = {now, 1};
    return RouteVersion(now);
  }
  // The slot shows an older pass already; that covers this one until the older one closes.
  Passes& newest = passes_[versions_ - 1];
  if (newest.version == now || versions_ == kVersions) {
    ++newest.count;
    return RouteVersion(newest.version);
  }
  passes_[versions_++] = {now, 1};
  return RouteVersion(now);
}

void QuiescenceReader::Exit(RouteVersion pass) {
  ENGRAM_CHECK(open_ > 0);
  --open_;
  const auto begin = passes_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(versions_);
  const auto it = std::find_if(
      begin, end, [pass](const Passes& passes) { return passes.version == pass.value(); });
  ENGRAM_CHECK(it != end);
  if (--it->count > 0) return;
  std::move(it + 1, end, it);
  --versions_;
  const std::uint64_t oldest = versions_ == 0 ? Quiescence::kIdle : passes_[0].version;
  if (oldest != slot_.oldest.load(std::memory_order_relaxed)) {
    slot_.oldest.store(oldest, std::memory_order_seq_cst);
  }
}

}  // namespace engram::client
