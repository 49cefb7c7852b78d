#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/figures.h"
#include "bench/driver/measure.h"
#include "bench/driver/paths.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kRowBytes = 264;
constexpr std::uint64_t kTableBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kQuickTableBytes = std::uint64_t{256} << 20;
constexpr std::uint32_t kSeveral = 8;

struct Floor {
  std::unique_ptr<ReadPath> path;
  std::uint32_t outstanding;
};

absl::StatusOr<std::vector<Floor>> OpenFloors(BenchTable& table, const BenchOptions& options) {
  std::vector<Floor> floors;
  floors.push_back({RawGather(table), 1});
  for (SocketKind kind : {SocketKind::kTcp, SocketKind::kUnix}) {
    for (std::uint32_t outstanding : {1u, kSeveral}) {
      auto path = RawSocket(table, kind, outstanding);
      if (!path.ok()) return path.status();
      floors.push_back({*std::move(path), outstanding});
    }
  }
  for (std::uint32_t outstanding : {1u, kSeveral}) {
    auto fi_read = BareFiRead(table, options.provider, 1, outstanding);
    if (fi_read.ok()) {
      floors.push_back({*std::move(fi_read), outstanding});
    } else {
      std::fprintf(stderr, "engram-bench: no one-sided floor: %s\n",
                   std::string(fi_read.status().message()).c_str());
    }
  }
  return floors;
}

}  // namespace

absl::Status RunFloor(const BenchOptions& options) {
  const std::uint64_t bytes = options.quick ? kQuickTableBytes : kTableBytes;
  auto table = BenchTable::Create(bytes / kRowBytes, kRowBytes, kRowBytes, options.seed);
  if (!table.ok()) return table.status();
  auto floors = OpenFloors(**table, options);
  if (!floors.ok()) return floors.status();
  std::printf("%s\n\n", DescribeMachine().c_str());

  const int rounds = options.quick ? 3 : 5;
  const Duration budget = std::chrono::milliseconds(options.quick ? 20 : 150);
  std::vector<Figure> figures;
  for (std::uint32_t rows : kBatchSizes) {
    std::vector<std::vector<double>> rates(floors->size());
    std::vector<Figure> of_size(floors->size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < floors->size(); ++i) {
        const Floor& floor = (*floors)[i];
        BatchSet set({(*table)->rows(), kRowBytes, options.seed}, rows,
                     BatchesPerCall(rows, floor.outstanding),
                     options.seed + static_cast<std::uint64_t>(round));
        auto measured = Measure(*floor.path, set, budget);
        if (!measured.ok()) return measured.status();
        rates[i].push_back(measured->rows_per_second / 1e6);
        of_size[i].rows_verified += measured->rows_verified;
      }
    }
    for (std::size_t i = 0; i < floors->size(); ++i) {
      Figure& figure = of_size[i];
      const Floor& floor = (*floors)[i];
      figure.figure =
          absl::StrCat(floor.path->name(), "_", rows, floor.outstanding > 1 ? "_several" : "");
      figure.unit = "Mrows/s";
      figure.seed = options.seed;
      Summarise(rates[i], &figure);
      figures.push_back(figure);
    }
  }
  PrintTable(figures);
  return options.json.empty() ? absl::OkStatus() : WriteJson(figures, options.json);
}

}  // namespace engram::bench
