// engram-bench pool: RowReader over each fabric against that fabric's floor, in the same rounds.
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/figures.h"
#include "bench/driver/local_pool.h"
#include "bench/driver/measure.h"
#include "bench/driver/pool_path.h"

namespace engram::bench {
namespace {

constexpr std::uint64_t kTableSeed = 7;
constexpr std::uint32_t kSeveral = 8;

// One row of the figures: a path of the product over its floor.
struct Pairing {
  std::string figure;  // without the batch size
  std::string table;
  FabricKind fabric;
  std::function<absl::StatusOr<std::unique_ptr<ReadPath>>(BenchTable&, std::uint32_t outstanding)>
      floor;
  std::vector<std::uint32_t> outstanding;
  std::map<std::uint32_t, double> goals;  // by batch size, one outstanding
};

std::vector<Pairing> Pairings(const BenchOptions& options) {
  const auto gather = [](BenchTable& table,
                         std::uint32_t) -> absl::StatusOr<std::unique_ptr<ReadPath>> {
    return RawGather(table);
  };
  const auto tcp = [](BenchTable& table, std::uint32_t outstanding) {
    return RawSocket(table, SocketKind::kTcp, outstanding);
  };
  const auto fi_read = [provider = options.provider](BenchTable& table, std::uint32_t) {
    return BareFiRead(table, provider, 2);
  };
  return {
      {"mapped_read", "plain@1", FabricKind::kMapped, gather, {1}, {{48, 0.8}, {1536, 0.9}}},
      {"mapped_read_sealed",
       "sealed@1",
       FabricKind::kMapped,
       gather,
       {1},
       {{48, 0.7}, {1536, 0.75}}},
      {"stream_read",
       "sealed@1",
       FabricKind::kStream,
       tcp,
       {1, kSeveral},
       {{48, 0.8}, {1536, 0.8}}},
      {"one_sided_read", "sealed@1", FabricKind::kOfi, fi_read, {1}, {{48, 0.9}, {1536, 0.9}}},
  };
}

// What all pairings share: the pool, and the same rows in this process for the floors.
struct Bench {
  BenchOptions options;
  std::unique_ptr<LocalPool> pool;
  std::unique_ptr<BenchTable> rows;
  std::vector<Figure> figures;

  int rounds() const { return options.quick ? 3 : 5; }
  Duration budget() const { return std::chrono::milliseconds(options.quick ? 20 : 150); }
};

absl::Status LoadTables(Bench& bench, std::uint64_t vocab) {
  const std::string spec = bench.pool->dir() + "/spec.json";
  std::ofstream(spec) << "{\"model\": \"deepseek-v4.1\", \"engram_vocab_size\": " << vocab
                      << ", \"layers\": [1, 14], \"seed\": " << kTableSeed << "}\n";
  for (const auto& [name, seal] : {std::pair{"plain@1", "none"}, std::pair{"sealed@1", "crc32c"}}) {
    auto loaded =
        bench.pool->Ctl({"load", "table", name, "--synthetic", spec, "--seal", seal, "--wait"});
    if (!loaded.ok()) return loaded.status();
  }
  return absl::OkStatus();
}

absl::Status MeasureSize(Bench& bench, const Pairing& pairing, const client::Table& table,
                         std::uint32_t rows, std::uint32_t outstanding) {
  auto floor = pairing.floor(*bench.rows, outstanding);
  if (!floor.ok()) return floor.status();
  auto product = PoolPath(pairing.figure, table, rows, outstanding);
  if (!product.ok()) return product.status();
  const TableShape shape{table.layout().rows(), table.spec().RowBytes(), kTableSeed};
  Figure ratio, rate;
  std::vector<double> ratios, rates;
  for (int round = 0; round < bench.rounds(); ++round) {
    BatchSet set(shape, rows, BatchesPerCall(rows, outstanding),
                 bench.options.seed + static_cast<std::uint64_t>(round));
    auto floor_rate = Measure(**floor, set, bench.budget());
    if (!floor_rate.ok()) return floor_rate.status();
    auto product_rate = Measure(**product, set, bench.budget());
    if (!product_rate.ok()) return product_rate.status();
    ratios.push_back(product_rate->rows_per_second / floor_rate->rows_per_second);
    rates.push_back(product_rate->rows_per_second / 1e6);
    ratio.rows_verified += product_rate->rows_verified;
  }
  const char* suffix = outstanding > 1 ? "_several" : "";
  ratio.figure = absl::StrCat(pairing.figure, "_", rows, suffix);
  ratio.reference = absl::StrCat((*floor)->name(), "_", rows, suffix);
  ratio.seed = rate.seed = bench.options.seed;
  const auto goal = pairing.goals.find(rows);
  if (outstanding == 1 && goal != pairing.goals.end()) ratio.goal = goal->second;
  rate.figure = absl::StrCat(ratio.figure, "_rate");
  rate.unit = "Mrows/s";
  rate.rows_verified = ratio.rows_verified;
  Summarise(ratios, &ratio);
  Summarise(rates, &rate);
  bench.figures.push_back(ratio);
  bench.figures.push_back(rate);
  return absl::OkStatus();
}

absl::Status MeasurePairing(Bench& bench, const Pairing& pairing) {
  client::PoolOptions options;
  options.endpoints = {bench.pool->endpoint()};
  options.fabric = pairing.fabric;
  auto pool = client::Pool::Open(options);
  if (!pool.ok()) return pool.status();
  auto table = (*pool)->OpenTable(pairing.table, {});
  if (!table.ok()) return table.status();
  for (std::uint32_t outstanding : pairing.outstanding) {
    for (std::uint32_t rows : kBatchSizes) {
      if (!Wanted(bench.options, absl::StrCat(pairing.figure, "_", rows))) continue;
      std::fprintf(stderr, "  %s %u rows, %u outstanding\n", pairing.figure.c_str(), rows,
                   outstanding);
      if (absl::Status ok = MeasureSize(bench, pairing, **table, rows, outstanding); !ok.ok())
        return ok;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPool(const BenchOptions& options) {
  Bench bench;
  bench.options = options;
  const std::uint64_t vocab = options.quick ? 16'000 : 176'000;  // 2.1 GiB of rows
  auto pool =
      LocalPool::Up(options.bin_dir, 1, options.quick ? "640MiB" : "5GiB", "mapped,stream,ofi");
  if (!pool.ok()) return pool.status();
  bench.pool = *std::move(pool);
  if (absl::Status ok = LoadTables(bench, vocab); !ok.ok()) return ok;
  EngramGeometry geometry;
  geometry.base_rows = vocab;
  geometry.raw_vocab = geometry.compressed_vocab = 129'280;
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) return spec.status();
  auto rows =
      BenchTable::Create(spec->Rows(), spec->RowBytes(), spec->RowBytes() + kSealBytes, kTableSeed);
  if (!rows.ok()) return rows.status();
  bench.rows = *std::move(rows);
  std::printf("%s\n\n", DescribeMachine().c_str());
  if (Wanted(options, "addressing_us_per_token")) {
    auto addressing = MeasureAddressing(options);
    if (!addressing.ok()) return addressing.status();
    bench.figures.push_back(*addressing);
  }
  for (const Pairing& pairing : Pairings(options)) {
    if (absl::Status ok = MeasurePairing(bench, pairing); !ok.ok()) return ok;
  }
  if (Wanted(options, "load_vs_dd")) {
    auto load = MeasureLoad(options);
    if (!load.ok()) return load.status();
    bench.figures.push_back(*load);
  }
  PrintTable(bench.figures);
  return options.json.empty() ? absl::OkStatus() : WriteJson(bench.figures, options.json);
}

}  // namespace engram::bench
