#include "engram/checkpoint/config.h"

#include "absl/strings/str_cat.h"
#include "engram/checkpoint/json.h"
#include "engram/checkpoint/token_map.h"

namespace engram {
namespace {

// Looks a field up at the top and under text_config; a field in both places must agree.
class Fields {
 public:
  Fields(const Json& root, std::string_view what) : what_(what), places_{&root} {
    if (const auto nested = root.find("text_config"); nested != root.end() && nested->is_object()) {
      places_.push_back(&*nested);
    }
  }

  absl::StatusOr<const Json*> Find(const std::string& field) const {
    const Json* found = nullptr;
    for (const Json* place : places_) {
      const auto at = place->find(field);
      if (at == place->end()) continue;
      if (found != nullptr && *found != *at) {
        return absl::InvalidArgumentError(absl::StrCat(
            what_, ": ", field, " has one value at the top and another under text_config"));
      }
      found = &*at;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, " has no field ", field,
                       " (at the top or under text_config): is this a checkpoint with Engram?"));
    }
    return found;
  }

  absl::StatusOr<std::uint64_t> U64(const std::string& field, std::uint64_t most) const {
    auto value = Find(field);
    if (!value.ok()) return value.status();
    return ToBoundedU64(**value, absl::StrCat(what_, ": ", field), most);
  }

  absl::StatusOr<std::vector<std::uint64_t>> List(const std::string& field) const {
    auto value = Find(field);
    if (!value.ok()) return value.status();
    return ToU64List(**value, absl::StrCat(what_, ": ", field), kMaxLayers);
  }

 private:
  std::string what_;
  std::vector<const Json*> places_;
};

absl::Status ReadLayers(const Fields& fields, std::string_view what, CheckpointConfig& config) {
  auto layers = fields.List("engram_layer_ids");
  if (!layers.ok()) return layers.status();
  config.geometry.layers.clear();
  for (std::uint64_t layer : *layers) {
    if (layer > kMaxU32) {
      return absl::InvalidArgumentError(
          absl::StrCat(View(what), ": engram_layer_ids lists ", layer, "; the limit is ", kMaxU32));
    }
    config.geometry.layers.push_back(static_cast<std::uint32_t>(layer));
  }
  auto rows = fields.List("engram_num_embeddings");
  if (!rows.ok()) return rows.status();
  config.layer_rows = *std::move(rows);
  if (config.layer_rows.size() == config.geometry.layers.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      View(what), ": engram_num_embeddings has ", config.layer_rows.size(),
      " entries and engram_layer_ids ", config.geometry.layers.size(), "; give one for each"));
}

}  // namespace

absl::StatusOr<CheckpointConfig> ParseCheckpointConfig(std::string_view json,
                                                       std::string_view what) {
  auto root = ParseJson(json, what);
  if (!root.ok()) return root.status();
  if (!root->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(View(what), " is not a JSON object"));
  }
  const Fields fields(*root, what);
  CheckpointConfig config;
  if (absl::Status layers = ReadLayers(fields, what, config); !layers.ok()) return layers;

  EngramGeometry& geometry = config.geometry;
  std::uint64_t max_order = 0, heads = 0, value_bytes = 0, pad_token = 0;
  const struct {
    const char* field;
    std::uint64_t most;
    std::uint64_t* out;
  } kNumbers[] = {{"engram_max_ngram_size", kMaxU32, &max_order},
                  {"engram_vocab_size", kMaxI64, &geometry.base_rows},
                  {"engram_n_heads", kMaxU32, &heads},
                  {"engram_head_dim", kMaxU32, &value_bytes},
                  {"engram_pad_token_id", kMaxI64, &pad_token},
                  {"engram_compressed_vocab_size", kMaxI64, &geometry.compressed_vocab}};
  for (const auto& number : kNumbers) {
    auto value = fields.U64(number.field, number.most);
    if (!value.ok()) return value.status();
    *number.out = *value;
  }
  geometry.max_order = static_cast<std::uint32_t>(max_order);
  geometry.heads = static_cast<std::uint32_t>(heads);
  geometry.value_bytes = static_cast<std::uint32_t>(value_bytes);
  geometry.pad_token = static_cast<std::int64_t>(pad_token);
  return config;
}

absl::StatusOr<TableSpec> SpecOf(const CheckpointConfig& config, const TokenMap& map,
                                 std::string_view what) {
  EngramGeometry geometry = config.geometry;
  if (const std::uint64_t count = CompressedCount(map); count != geometry.compressed_vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(what), ": engram_compressed_vocab_size is ", geometry.compressed_vocab,
                     ", but the tokenizer has ", map.size(), " tokens that compress to ", count,
                     "; use the tokenizer.json that belongs to this model"));
  }
  geometry.raw_vocab = map.size();
  geometry.token_map_digest = Digest(map);
  return SpecOf(config, geometry, what);
}

absl::StatusOr<TableSpec> SpecOf(const CheckpointConfig& config, const EngramGeometry& geometry,
                                 std::string_view what) {
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(View(what), ": ", spec.status().message()));
  }
  for (std::size_t i = 0; i < config.layer_rows.size(); ++i) {
    const std::uint64_t rows = spec->LayerRows(geometry.layers[i]);
    if (rows == config.layer_rows[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        View(what), ": engram_num_embeddings says ", config.layer_rows[i], " rows for layer ",
        geometry.layers[i], ", but the primes from engram_vocab_size ", geometry.base_rows,
        " add up to ", rows));
  }
  return spec;
}

}  // namespace engram
