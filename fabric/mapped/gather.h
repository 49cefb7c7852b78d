// The copy loops of mapped reads: prefetch some rows ahead, then plain loads and stores. Compiled
// twice, for the baseline and for AVX2; the better ones are chosen once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"

namespace engram::fabric {

// Where completions go: entry (start + i) & mask belongs to ops[i].
struct CompletionRing {
  ReadCompletion* entries;
  std::size_t mask;
  std::size_t start;
};

struct Gathering {
  // Carries out ops[0..count), one completion a read. A read whose region has another key than
  // `key`, that leaves its region or whose segments do not sum to its length is kRefused and
  // touches nothing.
  void (*ops)(const ReadOp* ops, std::size_t count, std::uint64_t key, CompletionRing ring);
  // ReadQueue::ReadNow.
  void (*rows)(const RowsNow& rows);
};

extern const Gathering kGatherBaseline;
#if defined(__x86_64__)
extern const Gathering kGatherAvx2;
#endif

// The fastest that this machine can run.
const Gathering& ChooseGather();

}  // namespace engram::fabric
