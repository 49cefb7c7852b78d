#include "engram/checkpoint/checkpoint_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/check.h"
#include "engram/checkpoint/config.h"
#include "engram/checkpoint/json.h"
#include "engram/checkpoint/tensor_directory.h"
#include "engram/checkpoint/token_map.h"

namespace engram {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::uint64_t kReadRows = 4096;  // rows a piece of ReadRows: bounds its memory

bool HoldsDType(DType wanted, std::string_view written) {
  if (written == "U8") return true;
  return written == (wanted == DType::kUE8M0 ? "F8_E8M0" : "F8_E4M3");
}

absl::Status CheckTensor(const TensorDirectory::Found& found, const Plane& plane,
                         std::uint64_t rows) {
  const Tensor& tensor = found.tensor;
  if (!HoldsDType(plane.dtype, tensor.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.path, ": tensor ", found.name, " has dtype ", QuotedText(tensor.dtype),
        "; it must be ", plane.dtype == DType::kUE8M0 ? "F8_E8M0" : "F8_E4M3", " or U8"));
  }
  if (tensor.shape != std::vector<std::uint64_t>{rows, plane.bytes}) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.path, ": tensor ", found.name, " has shape [", absl::StrJoin(tensor.shape, ", "),
        "]; config.json leads to [", rows, ", ", plane.bytes, "]"));
  }
  return absl::OkStatus();
}

absl::Status ReadExtent(const Extent& extent, std::byte* out) {
  const int fd = open(extent.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::NotFoundError(absl::StrCat("cannot open ", extent.path, ": ", strerror(errno)));
  }
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  std::uint64_t done = 0;
  while (done < extent.bytes) {
    const ssize_t got =
        pread(fd, out + done, extent.bytes - done, static_cast<off_t>(extent.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::DataLossError(absl::StrCat(extent.path, " at byte ", extent.offset + done, ": ",
                                              got == 0 ? "the file ends early; it was whole when "
                                                         "the checkpoint was opened"
                                                       : strerror(errno)));
    }
    done += static_cast<std::uint64_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointSource>> CheckpointSource::Open(
    const std::string& directory, const std::string& name_map_json) {
  const std::string config_path = absl::StrCat(directory, "/config.json");
  auto config_text = ReadSmallFile(config_path, kMaxConfigBytes);
  if (!config_text.ok()) return config_text.status();
  auto config = ParseCheckpointConfig(*config_text, config_path);
  if (!config.ok()) return config.status();
  auto map = ReadTokenizer(absl::StrCat(directory, "/tokenizer.json"));
  if (!map.ok()) return map.status();
  auto spec = SpecOf(*config, *map, config_path);
  if (!spec.ok()) return spec.status();
  auto files = TensorDirectory::Open(directory, name_map_json);
  if (!files.ok()) return files.status();

  std::unique_ptr<CheckpointSource> out(new CheckpointSource);
  out->layer_first_row_.push_back(0);
  for (std::uint32_t layer : spec->addressing.layers) {
    const std::uint64_t rows = spec->LayerRows(layer);
    out->layer_first_row_.push_back(out->layer_first_row_.back() + rows);
    for (const Plane& plane : spec->planes) {
      auto found = files->Find(absl::StrCat("layers.", layer, ".engram.embed.", plane.name));
      if (!found.ok()) return found.status();
      if (absl::Status fits = CheckTensor(*found, plane, rows); !fits.ok()) return fits;
      out->parts_.push_back({found->path, found->tensor.offset});
      out->inspection_.source_bytes += found->tensor.bytes;
    }
  }
  if (absl::Status used = files->CheckNameMapUsed(); !used.ok()) return used;
  out->inspection_.spec = *std::move(spec);
  out->inspection_.token_map = *std::move(map);
  return out;
}

std::vector<Extent> CheckpointSource::Extents(std::uint32_t plane, RowId first,
                                              std::uint64_t rows) const {
  const auto& planes = spec().planes;
  ENGRAM_CHECK(plane < planes.size());
  std::uint64_t row = first.value();
  const std::uint64_t end = row + rows;
  ENGRAM_CHECK(row <= end && end <= layer_first_row_.back());
  std::vector<Extent> extents;
  for (std::size_t layer = 0; row < end; ++layer) {
    const std::uint64_t layer_end = layer_first_row_[layer + 1];
    if (row >= layer_end) continue;
    const Part& part = parts_[layer * planes.size() + plane];
    const std::uint64_t take = std::min(end, layer_end) - row;
    const std::uint64_t bytes = planes[plane].bytes;
    extents.push_back(
        {part.path, part.offset + (row - layer_first_row_[layer]) * bytes, take * bytes});
    row += take;
  }
  return extents;
}

absl::Status CheckpointSource::ReadRows(RowId first, std::span<std::byte> out) const {
  const std::uint64_t row_bytes = spec().RowBytes();
  ENGRAM_CHECK(out.size() % row_bytes == 0);
  std::vector<std::byte> piece;
  for (std::uint64_t done = 0, rows = out.size() / row_bytes; done < rows; done += kReadRows) {
    const std::uint64_t count = std::min(kReadRows, rows - done);
    std::uint64_t column = 0;  // of the plane's first byte inside the packed row
    for (std::uint32_t plane = 0; plane < spec().planes.size(); ++plane) {
      const std::uint64_t width = spec().planes[plane].bytes;
      piece.resize(count * width);
      std::uint64_t filled = 0;
      for (const Extent& extent : Extents(plane, RowId(first.value() + done), count)) {
        if (absl::Status read = ReadExtent(extent, piece.data() + filled); !read.ok()) return read;
        filled += extent.bytes;
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        memcpy(out.data() + (done + i) * row_bytes + column, piece.data() + i * width, width);
      }
      column += width;
    }
  }
  return absl::OkStatus();
}

}  // namespace engram
