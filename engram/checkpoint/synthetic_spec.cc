#include "engram/checkpoint/synthetic_spec.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engram/checkpoint/config.h"
#include "engram/checkpoint/json.h"
#include "engram/checkpoint/token_map.h"

namespace engram {
namespace {

constexpr char kModel[] = "deepseek-v4.1";
constexpr std::uint64_t kMaxMapBytes = 64 << 20;
constexpr std::uint64_t kMaxSpecBytes = 1 << 20;
constexpr std::uint64_t kMaxU64 = ~std::uint64_t{0};

// What the JSON said, before it is checked against itself.
struct Stated {
  CheckpointConfig config;
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> raw_vocab;
  std::optional<std::uint64_t> compressed_vocab;
  std::string token_map;
};

template <class Out>
absl::Status Store(const Json& value, std::string_view field, std::uint64_t most, Out& out) {
  auto number = ToBoundedU64(value, field, most);
  if (!number.ok()) return number.status();
  out = static_cast<Out>(*number);
  return absl::OkStatus();
}

absl::Status ReadLayers(const Json& value, std::string_view field, EngramGeometry& geometry) {
  auto layers = ToU64List(value, field, kMaxLayers);
  if (!layers.ok()) return layers.status();
  geometry.layers.clear();
  for (std::uint64_t layer : *layers) {
    if (layer > kMaxU32) return Bad(field, absl::StrCat("layer ", layer, " is above ", kMaxU32));
    geometry.layers.push_back(static_cast<std::uint32_t>(layer));
  }
  return absl::OkStatus();
}

absl::Status ReadText(const Json& value, std::string_view field, std::string& out) {
  if (!value.is_string()) return Bad(field, "it must be a string");
  out = value.get<std::string>();
  return absl::OkStatus();
}

const std::vector<std::string>& KnownKeys() {
  static const auto& keys = *new std::vector<std::string>{"model",
                                                          "layers",
                                                          "engram_layer_ids",
                                                          "engram_vocab_size",
                                                          "engram_n_heads",
                                                          "engram_head_dim",
                                                          "engram_max_ngram_size",
                                                          "engram_pad_token_id",
                                                          "engram_num_embeddings",
                                                          "engram_compressed_vocab_size",
                                                          "vocab_size",
                                                          "token_map",
                                                          "base_seed",
                                                          "seed"};
  return keys;
}

absl::Status ReadKey(const std::string& key, const Json& value, std::string_view field,
                     Stated& stated) {
  EngramGeometry& geometry = stated.config.geometry;
  if (key == "layers" || key == "engram_layer_ids") return ReadLayers(value, field, geometry);
  if (key == "engram_vocab_size") return Store(value, field, kMaxI64, geometry.base_rows);
  if (key == "engram_max_ngram_size") return Store(value, field, kMaxU32, geometry.max_order);
  if (key == "engram_n_heads") return Store(value, field, kMaxU32, geometry.heads);
  if (key == "engram_head_dim") return Store(value, field, kMaxU32, geometry.value_bytes);
  if (key == "engram_pad_token_id") return Store(value, field, kMaxI64, geometry.pad_token);
  if (key == "base_seed") return Store(value, field, kMaxU64, geometry.base_seed);
  if (key == "seed") return Store(value, field, kMaxU64, stated.seed);
  if (key == "vocab_size") return Store(value, field, kMaxI64, stated.raw_vocab.emplace());
  if (key == "engram_compressed_vocab_size") {
    return Store(value, field, kMaxI64, stated.compressed_vocab.emplace());
  }
  if (key == "token_map") return ReadText(value, field, stated.token_map);
  if (key == "engram_num_embeddings") {
    auto rows = ToU64List(value, field, kMaxLayers);
    if (!rows.ok()) return rows.status();
    stated.config.layer_rows = *std::move(rows);
    return absl::OkStatus();
  }
  std::string model;
  if (absl::Status text = ReadText(value, field, model); !text.ok()) return text;
  if (model == kModel) return absl::OkStatus();
  return Bad(field, absl::StrCat("model ", QuotedText(model), " is unknown; use ", kModel));
}

absl::StatusOr<Stated> ReadStated(const Json& root, std::string_view what) {
  if (!root.is_object()) return Bad(what, "it is not a JSON object");
  if (!root.contains("model")) {
    return Bad(what, absl::StrCat("there is no \"model\"; write \"model\": \"", kModel, "\""));
  }
  if (root.contains("layers") && root.contains("engram_layer_ids")) {
    return Bad(what, "give layers or engram_layer_ids, not both");
  }
  Stated stated;
  for (const auto& [key, value] : root.items()) {
    if (std::ranges::find(KnownKeys(), key) == KnownKeys().end()) {
      return Bad(what, absl::StrCat("unknown key ", QuotedText(key), DidYouMean(key, KnownKeys())));
    }
    const std::string field = absl::StrCat(std::string(what), ": ", key);
    if (absl::Status read = ReadKey(key, value, field, stated); !read.ok()) return read;
  }
  if (!stated.config.layer_rows.empty() &&
      stated.config.layer_rows.size() != stated.config.geometry.layers.size()) {
    return Bad(what, absl::StrCat("engram_num_embeddings has ", stated.config.layer_rows.size(),
                                  " entries for ", stated.config.geometry.layers.size(),
                                  " layers; give one for each"));
  }
  return stated;
}

absl::StatusOr<TokenMap> ReadMap(const std::string& path) {
  if (path.ends_with(".json")) return ReadTokenizer(path);
  auto bytes = ReadSmallFile(path, kMaxMapBytes);
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty() || bytes->size() % 4 != 0) {
    return Bad(path, absl::StrCat("the file has ", bytes->size(),
                                  " bytes; a token map is little-endian int32 entries"));
  }
  TokenMap map;
  map.reserve(bytes->size() / 4);
  for (std::size_t i = 0; i < bytes->size(); i += 4) {
    std::uint32_t entry = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      entry |= static_cast<std::uint32_t>(static_cast<std::uint8_t>((*bytes)[i + j])) << (8 * j);
    }
    map.push_back(static_cast<std::int32_t>(entry));
    if (map.back() < 0) return Bad(path, absl::StrCat("entry ", i / 4, " is negative"));
  }
  return map;
}

// Identity: the map is left out, the spec says raw = compressed.
absl::StatusOr<TableSpec> IdentitySpec(const Stated& stated, std::string_view what) {
  EngramGeometry geometry = stated.config.geometry;
  if (stated.raw_vocab) geometry.raw_vocab = *stated.raw_vocab;
  geometry.compressed_vocab = geometry.raw_vocab;
  if (stated.compressed_vocab && *stated.compressed_vocab != geometry.raw_vocab) {
    return Bad(what, absl::StrCat("engram_compressed_vocab_size is ", *stated.compressed_vocab,
                                  ", but without a token_map the compressed vocabulary is the raw "
                                  "one, ",
                                  geometry.raw_vocab, "; give token_map or leave the size out"));
  }
  return SpecOf(stated.config, geometry, what);
}

}  // namespace

absl::StatusOr<SyntheticTable> ParseSyntheticSpec(std::string_view json, std::string_view what,
                                                  const std::string& directory) {
  auto root = ParseJson(json, what);
  if (!root.ok()) return root.status();
  auto stated = ReadStated(*root, what);
  if (!stated.ok()) return stated.status();
  SyntheticTable table;
  table.seed = stated->seed;
  if (stated->token_map.empty()) {
    auto spec = IdentitySpec(*stated, what);
    if (!spec.ok()) return spec.status();
    table.spec = *std::move(spec);
    return table;
  }
  auto map = ReadMap(std::filesystem::path(directory) / stated->token_map);
  if (!map.ok()) return map.status();
  if (stated->raw_vocab && *stated->raw_vocab != map->size()) {
    return Bad(what, absl::StrCat("vocab_size is ", *stated->raw_vocab, "; token_map has ",
                                  map->size(), " entries"));
  }
  CheckpointConfig& config = stated->config;
  config.geometry.compressed_vocab =
      stated->compressed_vocab ? *stated->compressed_vocab : CompressedCount(*map);
  auto spec = SpecOf(config, *map, what);
  if (!spec.ok()) return spec.status();
  table.spec = *std::move(spec);
  table.token_map = *std::move(map);
  return table;
}

absl::StatusOr<SyntheticTable> ReadSyntheticSpec(const std::string& path) {
  auto text = ReadSmallFile(path, kMaxSpecBytes);
  if (!text.ok()) return text.status();
  return ParseSyntheticSpec(*text, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace engram
