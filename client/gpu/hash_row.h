// Tokens -> row ids on the GPU: the "deepseek-v4.1" address function (ENGRAM 3 to 5), bit for bit
// what engram/addressing/deepseek_v41.cc computes, one row at a time, from plain arrays that a
// kernel can read. A token that is in no vocabulary cannot be refused in a kernel: every row that
// depends on it gets an id beyond every layer, which the reader poisons. Thread-safe.
#pragma once

#include <cstdint>
#include <limits>

#include "client/gpu/host_device.h"
#include "engram/addressing/fixed_modulus.h"

namespace engram::client::gpu {

inline constexpr std::uint32_t kMaxOrder = 16;

inline constexpr std::int64_t kSkippedRow = -1;
// Fits int32 and lies beyond every layer whose ids do.
inline constexpr std::int64_t kNoSuchRow = std::numeric_limits<std::int32_t>::max();

struct HashColumn {
  FixedModulus modulus;
  std::uint64_t first_row;  // in its layer's own table
};
struct HashLayer {
  std::uint64_t multipliers[kMaxOrder];  // by look-back distance
};

// A view; client/gpu/plans.h makes one.
struct HashPlan {
  const std::int32_t* token_map = nullptr;  // null: identity
  const HashLayer* layers = nullptr;
  const HashColumn* columns = nullptr;  // [layer][column]
  std::uint64_t raw_vocab = 0;
  std::uint64_t pad = 0;  // compressed
  std::uint32_t layer_count = 0, max_order = 0, heads = 0;
  std::int64_t dead_token = -1;  // raw id that is dead wherever it stands, or -1
  bool skip_dead = false;        // rows of dead positions are kSkippedRow, not those of the pad

  ENGRAM_HOST_DEVICE std::uint32_t columns_per_layer() const { return (max_order - 1) * heads; }
  ENGRAM_HOST_DEVICE std::uint32_t lookback() const { return max_order - 1; }
};

// Tokens of one or many sequences, one behind the other.
struct TokenBatch {
  const std::int64_t* tokens = nullptr;
  const std::uint8_t* dead = nullptr;  // null, or one flag a token
  std::uint32_t count = 0;
  const std::uint32_t* sequence = nullptr;  // of each token; null: there is one sequence
  const std::uint32_t* first = nullptr;     // of each sequence: its first token; null: token 0
  // [sequence][lookback()], oldest first, what stands before `first`; negative: nothing there.
  const std::int64_t* before = nullptr;  // null: nothing
  const std::uint8_t* before_dead = nullptr;
};

// The compressed ids that a position's rows depend on, newest first.
struct TokenWindow {
  std::uint64_t ids[kMaxOrder];
  bool dead = false;     // the position itself is
  bool unknown = false;  // a token is outside the vocabulary
};

namespace hash_internal {

struct SeenToken {
  std::int64_t id = -1;  // negative: before the start
  bool dead = false;
};

ENGRAM_HOST_DEVICE inline SeenToken TokenBefore(const HashPlan& plan, const TokenBatch& batch,
                                                std::uint32_t position, std::uint32_t distance) {
  const std::uint32_t sequence = batch.sequence == nullptr ? 0 : batch.sequence[position];
  const std::uint32_t first = batch.first == nullptr ? 0 : batch.first[sequence];
  if (position - first >= distance) {
    const std::uint32_t at = position - distance;
    const std::int64_t id = batch.tokens[at];
    const bool dead = batch.dead != nullptr && batch.dead[at] != 0;
    // A negative token of the batch is no start of a sequence; it is refused below.
    return {id < 0 ? std::numeric_limits<std::int64_t>::max() : id, dead};
  }
  const std::uint32_t back = distance - (position - first);  // 1: the last before `first`
  if (batch.before == nullptr || back > plan.lookback()) return {};
  const std::uint32_t at = (sequence + 1) * plan.lookback() - back;
  return {batch.before[at], batch.before_dead != nullptr && batch.before_dead[at] != 0};
}

}  // namespace hash_internal

// REQUIRES: position < batch.count.
ENGRAM_HOST_DEVICE inline TokenWindow WindowOf(const HashPlan& plan, const TokenBatch& batch,
                                               std::uint32_t position) {
  TokenWindow window;
  for (std::uint32_t i = 0; i < plan.max_order; ++i) window.ids[i] = plan.pad;
  for (std::uint32_t i = 0; i < plan.max_order; ++i) {
    const hash_internal::SeenToken token = hash_internal::TokenBefore(plan, batch, position, i);
    // A dead token blocks itself and everything older.
    const bool dead = token.dead || (plan.dead_token >= 0 && token.id == plan.dead_token);
    if (dead && i == 0) window.dead = true;
    if (dead || token.id < 0) break;
    if (static_cast<std::uint64_t>(token.id) >= plan.raw_vocab) {
      window.unknown = true;
      break;
    }
    window.ids[i] =
        static_cast<std::uint64_t>(plan.token_map == nullptr ? token.id : plan.token_map[token.id]);
  }
  return window;
}

// The row of `column` of `layer` (an index), counted in the layer's own table.
ENGRAM_HOST_DEVICE inline std::int64_t HashRow(const HashPlan& plan, const TokenWindow& window,
                                               std::uint32_t layer, std::uint32_t column) {
  if (window.dead && plan.skip_dead) return kSkippedRow;
  if (window.unknown) return kNoSuchRow;
  const HashLayer& from = plan.layers[layer];
  const std::uint32_t order = column / plan.heads + 2;
  std::uint64_t rolling = window.ids[0] * from.multipliers[0];
  for (std::uint32_t i = 1; i < order; ++i) rolling ^= window.ids[i] * from.multipliers[i];
  const HashColumn& hash = plan.columns[layer * plan.columns_per_layer() + column];
  return static_cast<std::int64_t>(hash.modulus(rolling) + hash.first_row);
}

}  // namespace engram::client::gpu
