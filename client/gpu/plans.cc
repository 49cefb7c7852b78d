#include "client/gpu/plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "engram/sealed_row.h"

namespace engram::client::gpu {

absl::StatusOr<HashArrays> HashArrays::Make(const TableSpec& spec, TokenMap map) {
  const AddressingSpec& a = spec.addressing;
  if (a.function != "deepseek-v4.1") {
    return absl::InvalidArgumentError(
        absl::StrCat("address function \"", a.function,
                     "\" has no kernel; the GPU hashes deepseek-v4.1 only: hash in the engine and "
                     "post row ids"));
  }
  // Checks everything that the arrays below rely on.
  auto checked = Addressing::Make(spec, map);
  if (!checked.ok()) return checked.status();
  ENGRAM_CHECK(a.max_order <= kMaxOrder);
  HashArrays out;
  out.map_ = std::move(map);
  std::size_t column = 0;
  const std::size_t per_layer = std::size_t{a.max_order - 1} * a.heads;
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    HashLayer layer{};
    std::ranges::copy(a.multipliers[i], layer.multipliers);
    out.layers_.push_back(layer);
    std::uint64_t first_row = 0;
    for (std::size_t j = 0; j < per_layer; ++j, ++column) {
      out.columns_.push_back({FixedModulus(spec.columns[column].rows), first_row});
      first_row += spec.columns[column].rows;
    }
  }
  const auto pad = static_cast<std::size_t>(a.pad_token);
  out.numbers_.pad = out.map_.empty() ? pad : static_cast<std::uint64_t>(out.map_[pad]);
  out.numbers_.raw_vocab = a.raw_vocab;
  out.numbers_.layer_count = static_cast<std::uint32_t>(a.layers.size());
  out.numbers_.max_order = a.max_order;
  out.numbers_.heads = a.heads;
  return out;
}

HashPlan HashArrays::view() const {
  HashPlan plan = numbers_;
  plan.token_map = map_.empty() ? nullptr : map_.data();
  plan.layers = layers_.data();
  plan.columns = columns_.data();
  return plan;
}

SealArrays::SealArrays(const TableUid& table, std::uint32_t row_bytes) : row_bytes_(row_bytes) {
  SealPlan shape;
  shape.row_bytes = row_bytes;
  weights_.resize(shape.pieces());
  // x^32 times x for every bit that follows the piece, from the last piece to the first.
  std::uint32_t weight = kCrcOne;
  const auto advance = [&weight](std::uint32_t bits) {
    while (bits-- > 0) weight = CrcTimesX(weight);
  };
  advance(32);
  std::uint32_t end = row_bytes;
  for (std::uint32_t i = shape.pieces(); i-- > 0;) {
    weights_[i] = weight;
    const std::uint32_t begin = i == 0 ? 0 : (i - 1) * 8;
    advance(i == 0 ? 64 : (end - begin) * 8);
    end = begin;
  }
  // The register after table_uid stands before all of it.
  weight = kCrcOne;
  advance((8 + row_bytes) * 8);
  start_ = CrcPiece(~Crc32c(0, table.bytes.data(), table.bytes.size()), 32, weight);
}

SealPlan SealArrays::view() const {
  SealPlan plan;
  plan.weights = weights_.data();
  plan.start = start_;
  plan.row_bytes = row_bytes_;
  return plan;
}

absl::StatusOr<RowFormat> FormatOf(const TableSpec& spec) {
  if (spec.planes.size() == 2 && spec.planes[0].dtype == DType::kE4M3 &&
      spec.planes[1].dtype == DType::kUE8M0 && spec.planes[0].bytes > 0 &&
      spec.planes[0].bytes % kValuesPerScale == 0 &&
      spec.planes[1].bytes == spec.planes[0].bytes / kValuesPerScale) {
    return RowFormat{spec.planes[0].bytes};
  }
  std::string planes;
  for (const Plane& plane : spec.planes) {
    const std::string_view name = Name(plane.dtype);
    absl::StrAppend(&planes, planes.empty() ? "" : ", ", plane.bytes, " B of ",
                    absl::string_view(name.data(), name.size()));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "rows of ", planes, " have no kernel; wanted are e4m3 values, then one ue8m0 scale for ",
      kValuesPerScale, " of them: read packed rows and unpack them in the engine"));
}

}  // namespace engram::client::gpu
