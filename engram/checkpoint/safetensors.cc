#include "engram/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engram/checkpoint/json.h"

namespace engram {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 8;

// Bits of one element; 0 for a dtype that is not known, whose size then cannot be checked.
std::uint64_t ElementBits(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    std::uint64_t bits;
  } kKnown[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
                {"F8_E8M0", 8}, {"U16", 16}, {"I16", 16},    {"F16", 16},    {"BF16", 16},
                {"U32", 32},    {"I32", 32}, {"F32", 32},    {"U64", 64},    {"I64", 64},
                {"F64", 64},    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"C64", 64}};
  for (const auto& entry : kKnown) {
    if (entry.name == dtype) return entry.bits;
  }
  return 0;
}

// Bytes that the shape needs, or an error when it does not fit 64 bits or whole bytes.
absl::StatusOr<std::uint64_t> ShapeBytes(const Tensor& tensor, std::string_view name,
                                         std::uint64_t bits) {
  std::uint64_t total = bits;
  for (std::uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(total, extent, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape of ", View(name), " has more than 2^64 bits"));
    }
  }
  if (total % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape of ", View(name), " ends inside a byte"));
  }
  return total / 8;
}

absl::StatusOr<Tensor> ParseTensor(const std::string& name, const Json& entry,
                                   std::uint64_t data_start) {
  const std::string quoted = QuotedText(name);
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", quoted, " lacks dtype, shape or data_offsets"));
  }
  Tensor tensor;
  tensor.dtype = entry["dtype"].get<std::string>();
  auto shape = ToU64List(entry["shape"], absl::StrCat("the shape of ", quoted), kMaxDimensions);
  if (!shape.ok()) return shape.status();
  tensor.shape = *std::move(shape);
  auto offsets = ToU64List(entry["data_offsets"], absl::StrCat("data_offsets of ", quoted), 2);
  if (!offsets.ok()) return offsets.status();
  if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets of ", quoted, " are not [begin, end] with begin <= end"));
  }
  if ((*offsets)[1] > kMaxJsonInteger) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets of ", quoted, " end at ", (*offsets)[1], "; the limit is 2^53"));
  }
  tensor.offset = data_start + (*offsets)[0];
  tensor.bytes = (*offsets)[1] - (*offsets)[0];
  const std::uint64_t bits = ElementBits(tensor.dtype);
  if (bits == 0) return tensor;
  auto bytes = ShapeBytes(tensor, quoted, bits);
  if (!bytes.ok()) return bytes.status();
  if (*bytes != tensor.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", quoted, " has ", tensor.bytes,
                                                   " bytes; its shape and dtype ", tensor.dtype,
                                                   " need ", *bytes));
  }
  return tensor;
}

// Tensors must tile the file from the header's end to the file's end.
absl::Status CheckTiling(const Tensors& tensors, std::uint64_t data_start,
                         std::uint64_t file_bytes) {
  std::vector<const Tensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::ranges::sort(order, [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  std::uint64_t end = data_start;
  for (const auto* entry : order) {
    const Tensor& tensor = entry->second;
    if (tensor.offset != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", QuotedText(entry->first),
          tensor.offset < end ? " overlaps" : " leaves a hole after",
          " the tensor before it: it starts at byte ", tensor.offset, ", that one ends at ", end));
    }
    end += tensor.bytes;
  }
  if (end == file_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the header describes ", end, " bytes but the file has ", file_bytes,
                   end > file_bytes ? "; it is truncated, copy it again"
                                    : "; bytes after the last tensor are not allowed"));
}

}  // namespace

absl::StatusOr<Tensors> ParseSafetensorsHeader(std::string_view header, std::uint64_t file_bytes,
                                               std::string_view what) {
  auto json = ParseJson(header, absl::StrCat(View(what), ": the header"));
  if (!json.ok()) return json.status();
  if (!json->is_object()) return Bad(what, "the header is not a JSON object");
  const std::uint64_t data_start = kLengthBytes + header.size();
  Tensors tensors;
  for (const auto& [name, entry] : json->items()) {
    if (name == "__metadata__") continue;
    auto tensor = ParseTensor(name, entry, data_start);
    if (!tensor.ok()) return Bad(what, std::string(tensor.status().message()));
    tensors.emplace(name, *std::move(tensor));
  }
  absl::Status tiling = CheckTiling(tensors, data_start, file_bytes);
  if (!tiling.ok()) return Bad(what, std::string(tiling.message()));
  return tensors;
}

absl::StatusOr<Tensors> ReadSafetensorsHeader(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat info {};
  std::uint8_t length_bytes[kLengthBytes];
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      pread(fd, length_bytes, kLengthBytes, 0) != static_cast<ssize_t>(kLengthBytes)) {
    return Bad(path, "this is not a safetensors file: it has no 8-byte header length");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(length_bytes[i]) << (8 * i);
  }
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  const std::uint64_t most = std::min(kMaxSafetensorsHeader, file_bytes - kLengthBytes);
  if (length > most) {
    return Bad(path, absl::StrCat("the header claims ", length, " bytes; this file allows ", most,
                                  ": it is truncated or not a safetensors file"));
  }
  std::string header(length, '\0');
  if (pread(fd, header.data(), length, kLengthBytes) != static_cast<ssize_t>(length)) {
    return Bad(path, "the header cannot be read in full");
  }
  return ParseSafetensorsHeader(header, file_bytes, path);
}

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text,
                                                                         std::string_view what) {
  auto json = ParseJson(text, what);
  if (!json.ok()) return json.status();
  if (!json->is_object() || !json->contains("weight_map") || !(*json)["weight_map"].is_object()) {
    return Bad(what, "there is no \"weight_map\" object");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : (*json)["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == "." || name == "..") {
      return Bad(what, absl::StrCat("weight_map sends ", QuotedText(tensor), " to ",
                                    QuotedText(file.dump(-1, ' ', true)),
                                    "; it must be the plain name of a file in this folder"));
    }
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace engram
