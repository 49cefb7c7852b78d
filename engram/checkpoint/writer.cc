#include "engram/checkpoint/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engram/checkpoint/config.h"
#include "engram/checkpoint/json.h"
#include "engram/checkpoint/token_map.h"
#include "engram/synthetic.h"

namespace engram {
namespace {

constexpr std::uint64_t kMaxGeneratedTokens = 1 << 20;
constexpr std::size_t kPieceBytes = 4 << 20;
constexpr std::size_t kHeaderAlignment = 8;
constexpr char kIndexName[] = "model.safetensors.index.json";

// One new file, written front to back. Thread-confined: call from the owner thread only.
class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~OutputFile() {
    if (fd_ >= 0) close(fd_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  absl::Status Write(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t wrote = fd_ < 0 ? -1 : write(fd_, at, bytes);
      if (wrote < 0 && fd_ >= 0 && errno == EINTR) continue;
      if (wrote < 0) return Failed();
      at += wrote;
      bytes -= static_cast<std::size_t>(wrote);
    }
    return absl::OkStatus();
  }
  // A full disk may show only here.
  absl::Status Finish() { return fd_ < 0 || fdatasync(fd_) != 0 ? Failed() : absl::OkStatus(); }

 private:
  absl::Status Failed() const {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", path_, ": ", strerror(errno)));
  }
  std::string path_;
  int fd_;
};

absl::Status WriteText(const std::string& path, const std::string& text) {
  OutputFile file(path);
  if (absl::Status wrote = file.Write(text.data(), text.size()); !wrote.ok()) return wrote;
  return file.Finish();
}

// A header with the tensors back to back in the given order, padded as the format wants.
struct NamedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes;
};
std::string HeaderOf(const std::vector<NamedTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + tensor.bytes}}};
    end += tensor.bytes;
  }
  std::string text = header.dump();
  while (text.size() % kHeaderAlignment != 0) text.push_back(' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(text.size() >> (8 * i)));
  return out + text;
}

class Writer {
 public:
  Writer(const CheckpointPlan& plan, TableSpec spec) : plan_(plan), spec_(std::move(spec)) {
    total_ = spec_.Rows() * spec_.RowBytes();
    files_ = spec_.addressing.layers.size() + 1;
  }

  absl::Status WriteAll(const std::string& tokenizer) {
    std::error_code error;
    std::filesystem::create_directories(plan_.directory, error);
    std::filesystem::remove(Path(kIndexName), error);
    if (absl::Status wrote = WriteText(Path("tokenizer.json"), tokenizer); !wrote.ok())
      return wrote;
    if (absl::Status wrote = WriteText(Path("config.json"), Config()); !wrote.ok()) return wrote;
    if (absl::Status wrote = WriteOtherTensors(); !wrote.ok()) return wrote;
    for (std::size_t i = 0; i < spec_.addressing.layers.size(); ++i) {
      if (absl::Status wrote = WriteLayer(i); !wrote.ok()) return wrote;
    }
    return WriteText(Path(kIndexName), Json{{"metadata", {{"total_size", total_ + kOtherBytes}}},
                                            {"weight_map", weight_map_}}
                                           .dump(2));
  }
  TableSpec spec() && { return std::move(spec_); }

 private:
  static constexpr std::uint64_t kOtherBytes = 64;

  std::string Path(const std::string& name) const { return plan_.directory + "/" + name; }
  std::string FileName(std::size_t index) const {
    return absl::StrFormat("model-%05d-of-%05d.safetensors", index + 1, files_);
  }

  std::string Config() const {
    const AddressingSpec& a = spec_.addressing;
    std::vector<std::uint64_t> rows;
    for (std::uint32_t layer : a.layers) rows.push_back(spec_.LayerRows(layer));
    const Json fields = {{"engram_layer_ids", a.layers},
                         {"engram_num_embeddings", rows},
                         {"engram_max_ngram_size", a.max_order},
                         {"engram_vocab_size", a.base_rows},
                         {"engram_n_heads", a.heads},
                         {"engram_head_dim", spec_.planes[0].bytes},
                         {"engram_pad_token_id", a.pad_token},
                         {"engram_compressed_vocab_size", a.compressed_vocab},
                         {"vocab_size", a.raw_vocab}};
    Json config = plan_.nested_config ? Json{{"text_config", fields}} : fields;
    config["model_type"] = "deepseek_v4";
    return config.dump(2);
  }

  // A model has other tensors too; a reader must not mind them.
  absl::Status WriteOtherTensors() {
    const std::string name = plan_.tensor_prefix + "embed.weight";
    weight_map_[name] = FileName(0);
    const std::string header = HeaderOf({{name, "BF16", {4, 8}, kOtherBytes}});
    return WriteText(Path(FileName(0)), header + std::string(kOtherBytes, '\0'));
  }

  absl::Status WriteLayer(std::size_t index) {
    const std::uint32_t layer = spec_.addressing.layers[index];
    const std::uint64_t rows = spec_.LayerRows(layer);
    std::vector<NamedTensor> tensors;
    for (const Plane& plane : spec_.planes) {
      tensors.push_back(
          {absl::StrCat(plan_.tensor_prefix, "layers.", layer, ".engram.embed.", plane.name),
           plane.dtype == DType::kUE8M0 ? "F8_E8M0" : "F8_E4M3",
           {rows, plane.bytes},
           rows * plane.bytes});
      weight_map_[tensors.back().name] = FileName(index + 1);
    }
    OutputFile file(Path(FileName(index + 1)));
    const std::string header = HeaderOf(tensors);
    if (absl::Status wrote = file.Write(header.data(), header.size()); !wrote.ok()) return wrote;
    std::uint64_t first_byte = 0;
    for (const Plane& plane : spec_.planes) {
      absl::Status wrote = WritePlane(file, layer, first_byte, plane.bytes);
      if (!wrote.ok()) return wrote;
      first_byte += plane.bytes;
    }
    return file.Finish();
  }

  absl::Status WritePlane(OutputFile& file, std::uint32_t layer, std::uint64_t first_byte,
                          std::uint32_t width) {
    const std::uint64_t first = spec_.LayerFirstRow(layer);
    const std::uint64_t rows = spec_.LayerRows(layer);
    const std::uint64_t piece_rows = std::max<std::uint64_t>(1, kPieceBytes / width);
    for (std::uint64_t row = 0; row < rows; row += piece_rows) {
      const std::uint64_t count = std::min(piece_rows, rows - row);
      piece_.resize(count * width);
      for (std::uint64_t i = 0; i < count; ++i) {
        FillSyntheticBytes(plan_.seed, RowId(first + row + i), first_byte,
                           std::span(piece_).subspan(i * width, width));
      }
      if (absl::Status wrote = file.Write(piece_.data(), piece_.size()); !wrote.ok()) return wrote;
      done_ += piece_.size();
      if (plan_.progress) plan_.progress(done_, total_);
    }
    return absl::OkStatus();
  }

  const CheckpointPlan& plan_;
  TableSpec spec_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::size_t files_ = 0;
  Json weight_map_ = Json::object();
  std::vector<std::byte> piece_;
};

// The character that stands for a byte in the byte-level alphabet, as UTF-8.
std::string ByteCharacter(int byte, int& next) {
  const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
  const int c = printable ? byte : next++;
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
}

}  // namespace

std::string GenerateTokenizer(std::uint64_t tokens) {
  Json vocab = Json::object();
  int next = 0x100;
  for (std::uint64_t id = 0; id < tokens; ++id) {
    vocab[id < 256 ? ByteCharacter(static_cast<int>(id), next) : absl::StrCat("word", id)] = id;
  }
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
      .dump();
}

absl::StatusOr<TableSpec> WriteCheckpoint(const CheckpointPlan& plan) {
  std::string tokenizer;
  if (plan.tokenizer.empty()) {
    if (plan.geometry.raw_vocab > kMaxGeneratedTokens) {
      return absl::InvalidArgumentError(absl::StrCat("a tokenizer of ", plan.geometry.raw_vocab,
                                                     " tokens is not generated; the limit is ",
                                                     kMaxGeneratedTokens));
    }
    tokenizer = GenerateTokenizer(plan.geometry.raw_vocab);
  } else {
    auto text = ReadSmallFile(plan.tokenizer, kMaxTokenizerBytes);
    if (!text.ok()) return text.status();
    tokenizer = *std::move(text);
  }
  auto tokens = ParseTokenizer(tokenizer,
                               plan.tokenizer.empty() ? "the generated tokenizer" : plan.tokenizer);
  if (!tokens.ok()) return tokens.status();
  const TokenMap map = MapOf(*tokens);
  CheckpointConfig config{plan.geometry, {}};
  config.geometry.compressed_vocab = CompressedCount(map);
  auto spec = SpecOf(config, map, "the plan");
  if (!spec.ok()) return spec.status();
  Writer writer(plan, *std::move(spec));
  if (absl::Status wrote = writer.WriteAll(tokenizer); !wrote.ok()) return wrote;
  return std::move(writer).spec();
}

}  // namespace engram
