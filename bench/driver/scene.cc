#include "bench/driver/scene.h"

#include <stdlib.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace engram::bench {
namespace {

std::uint64_t Vocabulary(const BenchOptions& options) { return options.quick ? 16'000 : 176'000; }

absl::StatusOr<std::unique_ptr<LocalPool>> UpFor(const BenchOptions& options,
                                                 const std::string& fabrics) {
  return LocalPool::Up(options.bin_dir, 1, options.quick ? "640MiB" : "5GiB", fabrics);
}

absl::Status LoadTables(const LocalPool& pool, const BenchOptions& options, bool plain) {
  const std::string spec = pool.dir() + "/spec.json";
  std::ofstream(spec) << "{\"model\": \"deepseek-v4.1\", \"engram_vocab_size\": "
                      << Vocabulary(options) << ", \"layers\": [1, 14], \"seed\": " << kTableSeed
                      << "}\n";
  for (const auto& [name, seal] :
       {std::pair{kPlainTable, "none"}, std::pair{kSealedTable, "crc32c"}}) {
    if (!plain && std::string_view(name) == kPlainTable) continue;
    auto loaded = pool.Ctl({"load", "table", name, "--synthetic", spec, "--seal", seal, "--wait"});
    if (!loaded.ok()) return loaded.status();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scene>> Scene::Open(const BenchOptions& options) {
  auto scene = std::make_unique<Scene>();
  scene->options = options;
  auto pool = UpFor(options, "mapped,stream,ofi");
  if (!pool.ok()) return pool.status();
  scene->pool = *std::move(pool);
  if (absl::Status ok = LoadTables(*scene->pool, options, true); !ok.ok()) return ok;
  EngramGeometry geometry;
  geometry.base_rows = Vocabulary(options);
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

absl::Status Scene::ServeOverUcx(const std::string& transports) {
  pool.reset();
  ucx_transports = transports;
  setenv("ENGRAM_UCX_TLS", transports.c_str(), 1);
  auto up = UpFor(options, "stream,ucx");
  if (!up.ok()) return up.status();
  pool = *std::move(up);
  return LoadTables(*pool, options, false);
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
  options.ucx_transports = scene.ucx_transports;
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
