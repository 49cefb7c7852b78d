#include "bench/driver/scene.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace engram::bench {
namespace {

absl::Status LoadTables(const LocalPool& pool, std::uint64_t vocab) {
  const std::string spec = pool.dir() + "/spec.json";
  std::ofstream(spec) << "{\"model\": \"deepseek-v4.1\", \"engram_vocab_size\": " << vocab
                      << ", \"layers\": [1, 14], \"seed\": " << kTableSeed << "}\n";
  for (const auto& [name, seal] :
       {std::pair{kPlainTable, "none"}, std::pair{kSealedTable, "crc32c"}}) {
    auto loaded = pool.Ctl({"load", "table", name, "--synthetic", spec, "--seal", seal, "--wait"});
    if (!loaded.ok()) return loaded.status();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scene>> Scene::Open(const BenchOptions& options) {
  auto scene = std::make_unique<Scene>();
  scene->options = options;
  const std::uint64_t vocab = options.quick ? 16'000 : 176'000;
  auto pool =
      LocalPool::Up(options.bin_dir, 1, options.quick ? "640MiB" : "5GiB", "mapped,stream,ofi");
  if (!pool.ok()) return pool.status();
  scene->pool = *std::move(pool);
  if (absl::Status ok = LoadTables(*scene->pool, vocab); !ok.ok()) return ok;
  EngramGeometry geometry;
  geometry.base_rows = vocab;
  geometry.raw_vocab = geometry.compressed_vocab = 129'280;
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) return spec.status();
  auto rows =
      BenchTable::Create(spec->Rows(), spec->RowBytes(), spec->RowBytes() + kSealBytes, kTableSeed);
  if (!rows.ok()) return rows.status();
  scene->rows = *std::move(rows);
  std::printf("%s\n\n", DescribeMachine().c_str());
  return scene;
}

absl::Status Scene::Report() const {
  PrintTable(figures);
  return options.json.empty() ? absl::OkStatus() : WriteJson(figures, options.json);
}

absl::StatusOr<OpenedTable> OpenedTable::Open(const Scene& scene, FabricKind fabric,
                                              const std::string& name) {
  client::PoolOptions options;
  options.endpoints = {scene.pool->endpoint()};
  options.fabric = fabric;
  auto pool = client::Pool::Open(options);
  if (!pool.ok()) return pool.status();
  auto table = (*pool)->OpenTable(name, {});
  if (!table.ok()) return table.status();
  OpenedTable opened;
  opened.pool = *std::move(pool);
  opened.table = *std::move(table);
  return opened;
}

}  // namespace engram::bench
