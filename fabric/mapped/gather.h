// The copy loop of mapped reads: prefetch some rows ahead, then plain loads and stores, one
// completion a read. Compiled twice, for the baseline and for AVX2; the better one is chosen once.
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

// Carries out ops[0..count). A read whose region has another key than `key`, that leaves its region
// or whose segments do not sum to its length is kRefused and touches nothing.
using GatherFunction = void (*)(const ReadOp* ops, std::size_t count, std::uint64_t key,
                                CompletionRing ring);

void GatherBaseline(const ReadOp* ops, std::size_t count, std::uint64_t key, CompletionRing ring);
#if defined(__x86_64__)
void GatherAvx2(const ReadOp* ops, std::size_t count, std::uint64_t key, CompletionRing ring);
#endif

// The fastest one that this machine can run.
GatherFunction ChooseGather();

}  // namespace engram::fabric
