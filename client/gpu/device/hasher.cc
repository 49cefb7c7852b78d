#include "client/gpu/device/hasher.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {
namespace {

// A vector's elements, in GPU memory.
template <class T>
absl::Status Copy(const std::vector<T>& from, DeviceMemory* to) {
  auto copied = DeviceMemory::CopyOf(from.data(), from.size() * sizeof(T));
  if (copied.ok()) *to = *std::move(copied);
  return copied.status();
}

}  // namespace

absl::StatusOr<HashArrays> Hasher::Arrays(const engram_gpu_hasher_options& options) {
  TableSpec spec;
  AddressingSpec& a = spec.addressing;
  a.function = "deepseek-v4.1";
  a.max_order = options.max_order;
  a.heads = options.heads;
  a.raw_vocab = options.raw_vocab;
  a.compressed_vocab = options.compressed_vocab;
  a.pad_token = options.pad_token;
  constexpr std::uint32_t kMost = 1024;
  if (options.layers > kMost || options.max_order < 2 || options.max_order > kMaxOrder ||
      options.heads > kMost || options.raw_vocab > std::uint64_t{1} << 28) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.layers, " layers, max_order ", options.max_order, ", ", options.heads,
                     " heads, vocabulary ", options.raw_vocab, ": the limits are ", kMost,
                     ", 2 to ", kMaxOrder, ", ", kMost, " and 2^28"));
  }
  const std::uint64_t* rows = options.column_rows;
  for (std::uint32_t layer = 0; layer < options.layers; ++layer) {
    a.layers.push_back(layer);
    a.multipliers.emplace_back(options.multipliers + layer * a.max_order,
                               options.multipliers + (layer + 1) * a.max_order);
    for (std::uint32_t order = 2; order <= a.max_order; ++order) {
      for (std::uint32_t head = 0; head < a.heads; ++head)
        spec.columns.push_back({layer, order, head, *rows++});
    }
  }
  spec.planes = {{"row", DType::kBytes, 1}};
  TokenMap map;
  if (options.token_map != nullptr) {
    map.assign(options.token_map, options.token_map + options.raw_vocab);
    a.token_map_digest = Digest(map);
  }
  return HashArrays::Make(spec, std::move(map));
}

absl::StatusOr<std::unique_ptr<Hasher>> Hasher::Open(const engram_gpu_hasher_options& options) {
  auto arrays = Arrays(options);
  if (!arrays.ok()) return arrays.status();
  const CurrentDevice current(options.device);
  if (!current.status().ok()) return current.status();
  std::unique_ptr<Hasher> out(new Hasher);
  absl::Status status = Copy(arrays->layers(), &out->layers_);
  if (status.ok()) status = Copy(arrays->columns(), &out->columns_);
  if (status.ok() && !arrays->token_map().empty()) status = Copy(arrays->token_map(), &out->map_);
  if (!status.ok()) return status;
  out->plan_ = arrays->view();
  out->plan_.layers = out->layers_.as<HashLayer>();
  out->plan_.columns = out->columns_.as<HashColumn>();
  out->plan_.token_map = out->map_.as<std::int32_t>();
  out->plan_.dead_token = options.dead_token;
  out->plan_.skip_dead = options.skip_dead != 0;
  for (const HashColumn& column : arrays->columns())
    out->most_rows_ = std::max(out->most_rows_, column.first_row + column.modulus.modulus());
  return out;
}

absl::Status Hasher::Hash(const TokenBatch& batch, HashOutput out, cudaStream_t stream) const {
  const std::uint64_t last =
      out.columns == 0 ? 0 : out.first_column + (out.columns - std::uint64_t{1}) * out.column_step;
  if (out.columns == 0 || last >= plan_.columns_per_layer()) {
    return absl::InvalidArgumentError(absl::StrCat(out.columns, " columns from ", out.first_column,
                                                   " on, every ", out.column_step, ": a layer has ",
                                                   plan_.columns_per_layer()));
  }
  if (out.ids32 != nullptr && most_rows_ > std::numeric_limits<std::int32_t>::max())
    return absl::InvalidArgumentError("a layer has more rows than int32 can count: use int64");
  out.layer_stride = out.columns;
  out.token_stride = std::size_t{plan_.layer_count} * out.columns;
  return FromCuda("hash kernel", LaunchHash(plan_, batch, out, stream));
}

}  // namespace engram::client::gpu
