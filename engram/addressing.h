// Token ids -> row ids, bit exact with the engines (ENGRAM sections 3 to 5). Pure: no sequence
// state; the caller passes the look-back that precedes its tokens.
//
// One subclass per named address function (ENGRAM section 8), each in its own file under
// engram/addressing/, registered by name in engram/addressing.cc. Immutable after Make:
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/table_spec.h"

namespace engram {

// raw token id -> compressed id, one entry per raw id. Empty = identity.
using TokenMap = std::vector<std::int32_t>;
// SHA-256, hex, of the map as little-endian int32.
std::string Digest(const TokenMap& map);

struct TokenSpan {
  std::span<const std::int64_t> tokens;         // raw ids, in order
  std::span<const std::uint8_t> dead;           // empty, or one flag per token
  std::span<const std::int64_t> lookback;       // raw ids before tokens[0], oldest first
  std::span<const std::uint8_t> lookback_dead;  // empty, or one flag per look-back token
};

class Addressing {
 public:
  virtual ~Addressing() = default;

  // InvalidArgument: unknown function (names the known ones), a token map whose size, count or
  // digest differs from the spec. `spec` is copied.
  static absl::StatusOr<std::unique_ptr<Addressing>> Make(const TableSpec& spec, TokenMap map);

  // Writes tokens.size() x columns row ids: [token][column of the whole table], whole-table RowIds.
  // InvalidArgument names the token, its position and the vocabulary when an id is outside it; the
  // id of a dead token is not looked at. Nothing is written then.
  // REQUIRES: out.size() == tokens.size() * columns().
  virtual absl::Status Rows(const TokenSpan& input, std::span<RowId> out) const = 0;
  virtual std::uint32_t columns() const = 0;
  // How many tokens before a position can matter: max_order - 1.
  virtual std::uint32_t lookback() const = 0;

  // For `explain`: compressed ids and the rolling hash of each (layer, order) at the last token.
  struct Trace {
    std::vector<std::int32_t> compressed;  // one per token of input.tokens
    struct Rolling {
      std::uint32_t layer, order;
      std::uint64_t value;
    };
    std::vector<Rolling> rolling;
  };
  virtual absl::StatusOr<Trace> Explain(const TokenSpan& input) const = 0;
};

// Builds the spec of a "deepseek-v4.1" table of any geometry: primes, multipliers, columns (ENGRAM
// 4, 5).
struct EngramGeometry {
  std::vector<std::uint32_t> layers{1, 14};
  std::uint32_t max_order = 4;
  std::uint32_t heads = 8;
  std::uint64_t base_rows = 16'000'000;  // `engram_vocab_size`
  std::uint32_t value_bytes = 256;  // `engram_head_dim`: FP8 E4M3 values; one UE8M0 scale per 32
  std::int64_t pad_token = 2;
  std::uint64_t base_seed = 0;
  std::uint64_t raw_vocab = 129'280;
  std::uint64_t compressed_vocab = 99'092;
  std::string token_map_digest;
};
absl::StatusOr<TableSpec> MakeEngramSpec(const EngramGeometry& geometry);

}  // namespace engram
