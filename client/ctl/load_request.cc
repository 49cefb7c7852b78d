#include "client/ctl/load_request.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/pool_stub.h"
#include "client/ctl/words.h"
#include "engram/checkpoint/synthetic_spec.h"
#include "engram/settings/units.h"
#include "proto/convert.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

// Comma-separated names of tiers, in any order.
absl::StatusOr<std::vector<Tier>> TiersOf(const std::string& text) {
  std::set<Tier> tiers;
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const auto tier = ParseTier(std::string_view(word.data(), word.size()));
    if (!tier.ok()) return UsageError(absl::StrCat("--tiers: ", tier.status().message()));
    tiers.insert(*tier);
  }
  return std::vector<Tier>(tiers.begin(), tiers.end());
}

absl::StatusOr<TableOptions> TableOptionsOf(const LoadOptions& options) {
  TableOptions table;
  if (!options.shard_bytes.empty()) {
    const auto bytes = ParseSize(options.shard_bytes);
    if (!bytes.ok()) return UsageError(absl::StrCat("--shard-bytes: ", bytes.status().message()));
    table.shard_bytes = *bytes;
  }
  if (options.seal != "crc32c" && options.seal != "none") {
    return UsageError(
        "--seal: " + UnknownWord("seal", options.seal, std::vector<std::string>{"crc32c", "none"}));
  }
  table.seal = options.seal == "none" ? SealKind::kNone : SealKind::kCrc32c;
  table.replicas = options.replicas;
  table.max_nodes = options.max_nodes;
  auto tiers = TiersOf(options.tiers);
  if (!tiers.ok()) return tiers.status();
  table.tiers = *std::move(tiers);
  if (const absl::Status valid = table.Validate(); !valid.ok()) {
    return UsageError(std::string(valid.message()));
  }
  return table;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError("there is no file " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Nodes open the directory themselves: the path must mean the same to them, so it is sent absolute.
absl::Status AddCheckpoint(const LoadOptions& options, v1::LoadTableRequest* request) {
  auto* source = request->mutable_source()->mutable_checkpoint();
  source->set_directory(fs::absolute(options.checkpoint).lexically_normal());
  if (options.name_map.empty()) return absl::OkStatus();
  const auto map = ReadText(options.name_map);
  if (!map.ok()) return Annotated(map.status(), "--name-map");
  source->set_name_map_json(*map);
  return absl::OkStatus();
}

absl::Status AddSynthetic(const LoadOptions& options, v1::LoadTableRequest* request) {
  const auto table = ReadSyntheticSpec(options.synthetic);
  if (!table.ok()) return Annotated(table.status(), "--synthetic");
  request->mutable_source()->mutable_synthetic()->set_seed(table->seed);
  *request->mutable_spec() = wire::ToWire(table->spec);
  request->set_token_map(wire::ToWire(table->token_map));
  return absl::OkStatus();
}

}  // namespace

void DeclareLoadOptions(Options app, LoadOptions* options, bool name_required) {
  const std::string help = "NAME@VERSION of the new table";
  if (name_required) {
    app.Word("NAME", &options->table, help);
  } else {
    app.OptionalWord("NAME", &options->table, help);
  }
  app.Text("--checkpoint", &options->checkpoint,
           "Hugging Face directory, as the pool nodes see it");
  app.Text("--synthetic", &options->synthetic, "JSON file that describes a synthetic table");
  app.Text("--name-map", &options->name_map, "JSON file {wanted tensor name: name in the files}");
  app.Number("--replicas", &options->replicas, "Copies of each shard, on different nodes (1)");
  app.Number("--max-nodes", &options->max_nodes, "Use at most so many nodes (as few as needed)");
  app.Text("--shard-bytes", &options->shard_bytes, "Largest shard, 1MiB to 1GiB (64MiB)");
  app.Text("--tiers", &options->tiers,
           "Tiers that may hold it: dram,cxl,nvme (all, the fastest with room first)");
  app.Text("--seal", &options->seal, "crc32c or none (crc32c)");
}

absl::StatusOr<v1::LoadTableRequest> BuildLoadRequest(const LoadOptions& options) {
  const auto name = ParseTable(options.table);
  if (!name.ok()) return name.status();
  if (options.checkpoint.empty() == options.synthetic.empty()) {
    return UsageError(
        "a table comes from one place: give --checkpoint DIR or --synthetic SPEC.json");
  }
  if (!options.name_map.empty() && options.checkpoint.empty()) {
    return UsageError("--name-map renames tensors of a checkpoint: give --checkpoint DIR too");
  }
  const auto table_options = TableOptionsOf(options);
  if (!table_options.ok()) return table_options.status();
  v1::LoadTableRequest request;
  *request.mutable_caller() = NewCaller();
  request.set_name(name->name);
  request.set_version(name->version);
  *request.mutable_options() = wire::ToWire(*table_options);
  const absl::Status added = options.synthetic.empty() ? AddCheckpoint(options, &request)
                                                       : AddSynthetic(options, &request);
  if (!added.ok()) return added;
  return request;
}

}  // namespace engram::ctl
