#include "poolserver/row_packer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {
namespace {

// Computes the block checksums of a run and calls visit(id, bytes) for every row. The two do not
// depend on each other, so they overlap in the pipeline.
template <class Byte, class Run, class Visit>
void ForEachRow(Byte* data, const Run& run, std::uint32_t stride, std::uint32_t row_bytes,
                Visit visit) {
  std::uint32_t crc = 0;
  for (std::uint64_t row = 0; row < run.rows; ++row) {
    Byte* const bytes = data + row * stride;
    crc = Crc32c(crc, bytes, row_bytes);
    visit(RowId(run.first.value() + row), bytes);
    if ((row + 1) % kBlockRows == 0 || row + 1 == run.rows) {
      run.block_crcs[row / kBlockRows] = crc;
      crc = 0;
    }
  }
}

}  // namespace

RowPacker::RowPacker(const TableRecord& table)
    : sealer_(table.uid, table.spec.RowBytes()),
      row_bytes_(table.spec.RowBytes()),
      stride_(ShardLayout(table.spec, table.options).stride()),
      seals_(table.options.seal == SealKind::kCrc32c) {
  for (const Plane& plane : table.spec.planes) plane_bytes_.push_back(plane.bytes);
}

void RowPacker::Pack(std::span<const std::byte* const> planes, const RowRun& run) const {
  // Block by block, so that sealing finds the rows in the cache.
  for (std::uint64_t done = 0; done < run.rows; done += kBlockRows) {
    const std::uint64_t rows = std::min(kBlockRows, run.rows - done);
    std::byte* const out = run.out + done * stride_;
    std::uint32_t at = 0;
    for (std::size_t plane = 0; plane < planes.size(); ++plane) {
      const std::uint32_t bytes = plane_bytes_[plane];
      const std::byte* in = planes[plane] + done * bytes;
      for (std::uint64_t row = 0; row < rows; ++row, in += bytes) {
        std::memcpy(out + row * stride_ + at, in, bytes);
      }
      at += bytes;
    }
    Seal({RowId(run.first.value() + done), rows, out, run.block_crcs + done / kBlockRows});
  }
}

void RowPacker::Seal(const RowRun& run) const {
  ForEachRow(run.out, run, stride_, row_bytes_, [this](RowId id, std::byte* bytes) {
    if (!seals_) return;
    const std::uint64_t seal = sealer_.Seal(id, bytes);
    std::memcpy(bytes + row_bytes_, &seal, kSealBytes);
  });
}

absl::Status RowPacker::Verify(const StoredRun& run) const {
  absl::Status sound;
  ForEachRow(run.data, run, stride_, row_bytes_, [&](RowId id, const std::byte* bytes) {
    if (!seals_ || !sound.ok()) return;
    std::uint64_t seal = 0;
    std::memcpy(&seal, bytes + row_bytes_, kSealBytes);
    if (!sealer_.Check(id, bytes, seal)) {
      sound = absl::DataLossError(absl::StrCat("row ", id.value(), " does not match its seal"));
    }
  });
  return sound;
}

}  // namespace engram::poolserver
