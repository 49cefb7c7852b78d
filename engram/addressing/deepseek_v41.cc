// The "deepseek-v4.1" address function (ENGRAM sections 4 and 5): for every position and order n
// the rolling hash XORs n products (compressed id x multiplier of its distance); each head takes it
// modulo its own prime.
#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engram/addressing.h"
#include "engram/addressing/fixed_modulus.h"
#include "engram/addressing/functions.h"
#include "engram/addressing/numpy_random.h"
#include "engram/addressing/primes.h"

namespace engram {
namespace {

constexpr std::uint32_t kMaxOrder = 16;
constexpr std::uint32_t kMaxHeads = 256;
constexpr std::size_t kMaxLayers = 1024;
constexpr std::uint64_t kMaxVocab = std::uint64_t{1} << 28;
constexpr std::uint64_t kSeedPerLayer = 10007;
constexpr std::uint32_t kValuesPerScale = 32;
constexpr std::uint64_t kMaxProduct = std::numeric_limits<std::int64_t>::max();

// Compressed ids of the last tokens, newest first. A dead token blocks itself and everything older,
// which is the same as starting again with pads.
using Window = std::array<std::uint64_t, kMaxOrder>;

struct LayerColumns {
  std::uint32_t layer = 0;
  std::array<std::uint64_t, kMaxOrder> multipliers{};
};

struct ColumnHash {
  FixedModulus modulus;
  std::uint64_t first_row;
};

class DeepseekV41 final : public Addressing {
 public:
  DeepseekV41(const TableSpec& spec, TokenMap map)
      : map_(std::move(map)),
        raw_vocab_(spec.addressing.raw_vocab),
        max_order_(spec.addressing.max_order),
        heads_(spec.addressing.heads) {
    pad_ = Compress(spec.addressing.pad_token);
    for (std::size_t i = 0; i < spec.addressing.layers.size(); ++i) {
      LayerColumns layer{spec.addressing.layers[i], {}};
      std::ranges::copy(spec.addressing.multipliers[i], layer.multipliers.begin());
      layers_.push_back(layer);
    }
    std::uint64_t first_row = 0;
    for (const Column& column : spec.columns) {
      columns_.push_back({FixedModulus(column.rows), first_row});
      first_row += column.rows;
    }
  }

  absl::Status Rows(const TokenSpan& input, std::span<RowId> out) const override;
  absl::StatusOr<Trace> Explain(const TokenSpan& input) const override;
  std::uint32_t columns() const override { return static_cast<std::uint32_t>(columns_.size()); }
  std::uint32_t lookback() const override { return max_order_ - 1; }

 private:
  absl::Status Check(const TokenSpan& input) const;
  absl::Status CheckIds(std::string_view what, std::span<const std::int64_t> ids,
                        std::span<const std::uint8_t> dead) const;
  // REQUIRES: 0 <= token < raw_vocab_.
  std::uint64_t Compress(std::int64_t token) const {
    const auto index = static_cast<std::size_t>(token);
    return map_.empty() ? index : static_cast<std::uint64_t>(map_[index]);
  }
  Window WindowBefore(const TokenSpan& input) const;
  void Push(Window& window, std::int64_t token, bool dead) const;
  void HashToken(const Window& window, RowId* out) const;

  TokenMap map_;
  std::uint64_t raw_vocab_;
  std::uint64_t pad_ = 0;
  std::uint32_t max_order_;
  std::uint32_t heads_;
  std::vector<LayerColumns> layers_;
  std::vector<ColumnHash> columns_;
};

bool IsDead(std::span<const std::uint8_t> dead, std::size_t i) {
  return !dead.empty() && dead[i] != 0;
}

absl::Status DeepseekV41::CheckIds(std::string_view what, std::span<const std::int64_t> ids,
                                   std::span<const std::uint8_t> dead) const {
  const absl::string_view name(what.data(), what.size());
  if (!dead.empty() && dead.size() != ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", dead.size(), " dead marks for ",
                                                   ids.size(), " ", name,
                                                   "s; give none or one for each"));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<std::uint64_t>(ids[i]) < raw_vocab_ || IsDead(dead, i)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " at position ", i, " is ", ids[i], "; the vocabulary is 0 to ",
                     raw_vocab_ - 1, ": check the tokenizer, or mark the token dead"));
  }
  return absl::OkStatus();
}

absl::Status DeepseekV41::Check(const TokenSpan& input) const {
  if (absl::Status ids = CheckIds("token", input.tokens, input.dead); !ids.ok()) return ids;
  return CheckIds("look-back token", input.lookback, input.lookback_dead);
}

void DeepseekV41::Push(Window& window, std::int64_t token, bool dead) const {
  if (dead) {
    window.fill(pad_);
    return;
  }
  for (std::uint32_t i = max_order_ - 1; i > 0; --i) window[i] = window[i - 1];
  window[0] = Compress(token);
}

Window DeepseekV41::WindowBefore(const TokenSpan& input) const {
  Window window;
  window.fill(pad_);
  const std::size_t all = input.lookback.size();
  for (std::size_t i = all - std::min<std::size_t>(all, lookback()); i < all; ++i) {
    Push(window, input.lookback[i], IsDead(input.lookback_dead, i));
  }
  return window;
}

void DeepseekV41::HashToken(const Window& window, RowId* out) const {
  const ColumnHash* column = columns_.data();
  for (const LayerColumns& layer : layers_) {
    std::uint64_t rolling = window[0] * layer.multipliers[0];
    for (std::uint32_t distance = 1; distance < max_order_; ++distance) {
      rolling ^= window[distance] * layer.multipliers[distance];
      for (std::uint32_t head = 0; head < heads_; ++head, ++column, ++out) {
        *out = RowId(column->modulus(rolling) + column->first_row);
      }
    }
  }
}

absl::Status DeepseekV41::Rows(const TokenSpan& input, std::span<RowId> out) const {
  if (out.size() != input.tokens.size() * columns_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the output has room for ", out.size(), " row ids; ", input.tokens.size(), " tokens x ",
        columns_.size(), " columns need ", input.tokens.size() * columns_.size()));
  }
  if (absl::Status checked = Check(input); !checked.ok()) return checked;
  Window window = WindowBefore(input);
  RowId* at = out.data();
  for (std::size_t i = 0; i < input.tokens.size(); ++i, at += columns_.size()) {
    Push(window, input.tokens[i], IsDead(input.dead, i));
    HashToken(window, at);
  }
  return absl::OkStatus();
}

absl::StatusOr<Addressing::Trace> DeepseekV41::Explain(const TokenSpan& input) const {
  if (absl::Status checked = Check(input); !checked.ok()) return checked;
  Trace trace;
  Window window = WindowBefore(input);
  for (std::size_t i = 0; i < input.tokens.size(); ++i) {
    Push(window, input.tokens[i], IsDead(input.dead, i));
    trace.compressed.push_back(static_cast<std::int32_t>(window[0]));
  }
  for (const LayerColumns& layer : layers_) {
    std::uint64_t rolling = window[0] * layer.multipliers[0];
    for (std::uint32_t order = 2; order <= max_order_; ++order) {
      rolling ^= window[order - 1] * layer.multipliers[order - 1];
      trace.rolling.push_back({layer.layer, order, rolling});
    }
  }
  return trace;
}

absl::Status OutOfRange(std::string_view field, std::uint64_t value, std::uint64_t least,
                        std::uint64_t most) {
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()),
                                                 " is ", value, "; deepseek-v4.1 needs ", least,
                                                 " to ", most));
}

// The bounds that hold for a geometry and for a spec alike.
absl::Status CheckShape(const AddressingSpec& a) {
  if (a.layers.empty() || a.layers.size() > kMaxLayers)
    return OutOfRange("the number of layers", a.layers.size(), 1, kMaxLayers);
  if (a.max_order < 2 || a.max_order > kMaxOrder)
    return OutOfRange("max_order", a.max_order, 2, kMaxOrder);
  if (a.heads < 1 || a.heads > kMaxHeads) return OutOfRange("heads", a.heads, 1, kMaxHeads);
  if (a.raw_vocab < 1 || a.raw_vocab > kMaxVocab)
    return OutOfRange("the raw vocabulary", a.raw_vocab, 1, kMaxVocab);
  if (a.compressed_vocab < 1 || a.compressed_vocab > a.raw_vocab)
    return OutOfRange("the compressed vocabulary", a.compressed_vocab, 1, a.raw_vocab);
  if (a.pad_token < 0 || static_cast<std::uint64_t>(a.pad_token) >= a.raw_vocab) {
    return absl::InvalidArgumentError(absl::StrCat("the pad token is ", a.pad_token,
                                                   "; the vocabulary is 0 to ", a.raw_vocab - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckMultipliers(const AddressingSpec& a) {
  if (a.multipliers.size() != a.layers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the spec has multipliers for ",
                                                   a.multipliers.size(), " layers; it has ",
                                                   a.layers.size(), " layers"));
  }
  // Beyond this a product would leave 63 bits, where the engines' int64 arithmetic wraps.
  const std::uint64_t most = kMaxProduct / a.compressed_vocab;
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    if (a.multipliers[i].size() != a.max_order) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", a.layers[i], " has ", a.multipliers[i].size(),
                       " multipliers; max_order ", a.max_order, " needs as many"));
    }
    for (std::int64_t value : a.multipliers[i]) {
      if (value >= 1 && static_cast<std::uint64_t>(value) <= most) continue;
      return absl::InvalidArgumentError(absl::StrCat("a multiplier of layer ", a.layers[i], " is ",
                                                     value, "; it must be 1 to ", most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const TableSpec& spec) {
  const AddressingSpec& a = spec.addressing;
  const std::size_t per_layer = std::size_t{a.max_order - 1} * a.heads;
  if (spec.columns.size() != a.layers.size() * per_layer) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the spec has ", spec.columns.size(), " columns; ", a.layers.size(), " layers x orders 2-",
        a.max_order, " x ", a.heads, " heads are ", a.layers.size() * per_layer));
  }
  for (std::size_t i = 0; i < spec.columns.size(); ++i) {
    const Column& column = spec.columns[i];
    const std::uint64_t order = i % per_layer / a.heads + 2;
    if (column.order != order || column.head != i % a.heads) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column ", i, " is (order ", column.order, ", head ", column.head,
          "); deepseek-v4.1 lists orders, then heads: (", order, ", ", i % a.heads, ")"));
    }
    if (column.rows < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", i, " has ", column.rows, " rows; a hash needs at least 2"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::int64_t>> DrawMultipliers(const AddressingSpec& a,
                                                          std::uint32_t layer) {
  std::uint64_t seed;
  if (__builtin_add_overflow(a.base_seed, kSeedPerLayer * layer, &seed)) {
    return absl::InvalidArgumentError(absl::StrCat("base_seed is ", a.base_seed, "; with layer ",
                                                   layer, " the seed leaves 64 bits"));
  }
  NumpyRandom random(seed);
  // kMaxVocab keeps the bound above 2^32, where NumPy draws 64 bits.
  const std::uint64_t bound = kMaxProduct / a.compressed_vocab / 2;
  std::vector<std::int64_t> multipliers;
  for (std::uint32_t i = 0; i < a.max_order; ++i) {
    multipliers.push_back(static_cast<std::int64_t>(2 * random.Integer(bound) + 1));
  }
  return multipliers;
}

// Consecutive primes from base_rows, in (layer, order, head) order, none taken twice.
absl::Status AppendColumns(TableSpec& spec) {
  const AddressingSpec& a = spec.addressing;
  std::uint64_t next = a.base_rows;
  for (std::uint32_t layer : a.layers) {
    for (std::uint32_t order = 2; order <= a.max_order; ++order) {
      for (std::uint32_t head = 0; head < a.heads; ++head) {
        const std::uint64_t prime = PrimeAtOrAbove(next);
        if (prime > kMaxColumnRows) return OutOfRange("engram_vocab_size", a.base_rows, 2, next);
        spec.columns.push_back({layer, order, head, prime});
        next = prime + 1;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Addressing>> MakeDeepseekV41(const TableSpec& spec, TokenMap map) {
  if (absl::Status shape = CheckShape(spec.addressing); !shape.ok()) return shape;
  if (absl::Status drawn = CheckMultipliers(spec.addressing); !drawn.ok()) return drawn;
  if (absl::Status columns = CheckColumns(spec); !columns.ok()) return columns;
  return std::make_unique<DeepseekV41>(spec, std::move(map));
}

absl::StatusOr<TableSpec> MakeEngramSpec(const EngramGeometry& geometry) {
  TableSpec spec;
  AddressingSpec& a = spec.addressing;
  a.function = "deepseek-v4.1";
  a.layers = geometry.layers;
  a.max_order = geometry.max_order;
  a.heads = geometry.heads;
  a.base_rows = geometry.base_rows;
  a.base_seed = geometry.base_seed;
  a.pad_token = geometry.pad_token;
  a.raw_vocab = geometry.raw_vocab;
  a.compressed_vocab = geometry.compressed_vocab;
  a.token_map_digest = geometry.token_map_digest;
  if (absl::Status shape = CheckShape(a); !shape.ok()) return shape;
  if (a.base_rows < 2 || a.base_rows > kMaxColumnRows)
    return OutOfRange("engram_vocab_size", a.base_rows, 2, kMaxColumnRows);
  if (geometry.value_bytes == 0 || geometry.value_bytes % kValuesPerScale != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("engram_head_dim is ", geometry.value_bytes, "; it must be a multiple of ",
                     kValuesPerScale, ", because one scale serves ", kValuesPerScale, " values"));
  }
  for (std::uint32_t layer : a.layers) {
    auto multipliers = DrawMultipliers(a, layer);
    if (!multipliers.ok()) return multipliers.status();
    a.multipliers.push_back(*std::move(multipliers));
  }
  spec.planes = {{"weight", DType::kE4M3, geometry.value_bytes},
                 {"scale", DType::kUE8M0, geometry.value_bytes / kValuesPerScale}};
  if (absl::Status columns = AppendColumns(spec); !columns.ok()) return columns;
  if (absl::Status valid = spec.Validate(); !valid.ok()) return valid;
  return spec;
}

}  // namespace engram
