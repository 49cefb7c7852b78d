// engram-bench pool: RowReader over each fabric against that fabric's floor, in the same rounds.
#include <cstdio>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/driver/pool_path.h"
#include "bench/driver/scene.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kSeveralOutstanding = 8;

// One row of the figures: a path of the product over its floor, with one batch and with several
// outstanding.
struct Pairing {
  std::string figure;  // without the batch size
  std::string table;
  FabricKind fabric;
  std::function<absl::StatusOr<std::unique_ptr<ReadPath>>(BenchTable&, std::uint32_t outstanding)>
      floor;
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
  const auto fi_read = [provider = options.provider](BenchTable& table, std::uint32_t outstanding) {
    return BareFiRead(table, provider, 2, outstanding);
  };
  return {
      {"mapped_read", kPlainTable, FabricKind::kMapped, gather, {{48, 0.8}, {1536, 0.9}}},
      {"mapped_read_sealed", kSealedTable, FabricKind::kMapped, gather, {{48, 0.7}, {1536, 0.75}}},
      {"stream_read", kSealedTable, FabricKind::kStream, tcp, {{48, 0.8}, {1536, 0.8}}},
      {"one_sided_read", kSealedTable, FabricKind::kOfi, fi_read, {{48, 0.9}, {1536, 0.9}}},
  };
}

absl::Status MeasureSize(Scene& scene, const Pairing& pairing, const OpenedTable& opened,
                         std::uint32_t rows, std::uint32_t outstanding) {
  auto floor = pairing.floor(*scene.rows, outstanding);
  if (!floor.ok()) return floor.status();
  auto product = PoolPath(pairing.figure, *opened.table, rows, outstanding);
  if (!product.ok()) return product.status();
  Figure ratio, rate;
  std::vector<double> ratios, rates;
  for (int round = 0; round < scene.rounds(); ++round) {
    BatchSet set(opened.shape(), rows, BatchesPerCall(rows, outstanding),
                 scene.options.seed + static_cast<std::uint64_t>(round));
    auto floor_rate = Measure(**floor, set, scene.budget());
    if (!floor_rate.ok()) return floor_rate.status();
    auto product_rate = Measure(**product, set, scene.budget());
    if (!product_rate.ok()) return product_rate.status();
    ratios.push_back(product_rate->rows_per_second / floor_rate->rows_per_second);
    rates.push_back(product_rate->rows_per_second / 1e6);
    ratio.rows_verified += product_rate->rows_verified;
  }
  const char* suffix = outstanding > 1 ? "_several" : "";
  ratio.figure = absl::StrCat(pairing.figure, "_", rows, suffix);
  ratio.reference = absl::StrCat((*floor)->name(), "_", rows, suffix);
  ratio.seed = rate.seed = scene.options.seed;
  const auto goal = pairing.goals.find(rows);
  if (outstanding == 1 && goal != pairing.goals.end()) ratio.goal = goal->second;
  rate.figure = absl::StrCat(ratio.figure, "_rate");
  rate.unit = "Mrows/s";
  rate.rows_verified = ratio.rows_verified;
  Summarise(ratios, &ratio);
  Summarise(rates, &rate);
  scene.figures.push_back(ratio);
  scene.figures.push_back(rate);
  return absl::OkStatus();
}

absl::Status MeasurePairing(Scene& scene, const Pairing& pairing) {
  auto opened = OpenedTable::Open(scene, pairing.fabric, pairing.table);
  if (!opened.ok()) return opened.status();
  for (std::uint32_t outstanding : {1u, kSeveralOutstanding}) {
    for (std::uint32_t rows : kBatchSizes) {
      if (!Wanted(scene.options, absl::StrCat(pairing.figure, "_", rows))) continue;
      std::fprintf(stderr, "  %s %u rows, %u outstanding\n", pairing.figure.c_str(), rows,
                   outstanding);
      if (absl::Status ok = MeasureSize(scene, pairing, *opened, rows, outstanding); !ok.ok())
        return ok;
    }
  }
  return absl::OkStatus();
}

constexpr const char* kUcxTransports[] = {"tcp", "sysv"};

std::string UcxFigure(const std::string& transports) {
  return absl::StrCat("ucx_", transports, "_read");
}

// Targets of the floors, before this process uses UCX.
using UcpTargets = std::map<std::string, std::shared_ptr<const UcpTarget>>;
UcpTargets ForkUcpTargets(const BenchOptions& options, BenchTable& table) {
  UcpTargets targets;
  for (const std::string transports : kUcxTransports) {
    const std::string figure = UcxFigure(transports);
    if (!Wanted(options, figure) && !options.only.starts_with(figure)) continue;
    auto forked = UcpTarget::Fork(table, transports);
    if (forked.ok()) {
      targets[transports] = *std::move(forked);
    } else {
      std::fprintf(stderr, "  ucx is left out: %s\n",
                   std::string(forked.status().message()).c_str());
    }
  }
  return targets;
}

absl::Status MeasureUcx(Scene& scene, const UcpTargets& targets) {
  for (const auto& [transports, target] : targets) {
    if (absl::Status ok = scene.ServeOverUcx(transports); !ok.ok()) return ok;
    const Pairing pairing{UcxFigure(transports),
                          kSealedTable,
                          FabricKind::kUcx,
                          [target = target](BenchTable&, std::uint32_t outstanding) {
                            return BareUcpGet(target, outstanding);
                          },
                          {}};
    if (absl::Status ok = MeasurePairing(scene, pairing); !ok.ok()) return ok;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPool(const BenchOptions& options) {
  auto opened = Scene::Open(options);
  if (!opened.ok()) return opened.status();
  Scene& scene = **opened;
  const UcpTargets targets = ForkUcpTargets(options, *scene.rows);
  if (Wanted(options, "addressing_us_per_token")) {
    auto addressing = MeasureAddressing(options);
    if (!addressing.ok()) return addressing.status();
    scene.figures.push_back(*addressing);
  }
  for (const Pairing& pairing : Pairings(options)) {
    if (absl::Status ok = MeasurePairing(scene, pairing); !ok.ok()) return ok;
  }
  if (absl::Status ok = MeasureUcx(scene, targets); !ok.ok()) return ok;
  if (Wanted(options, "load_vs_dd")) {
    auto load = MeasureLoad(options);
    if (!load.ok()) return load.status();
    scene.figures.push_back(*load);
  }
  return scene.Report();
}

}  // namespace engram::bench
