// engram-bench tiers: rows of the NVMe tier, read over TCP through the gather, against fio and
// against a mapped file, and moves to it and back, on the same file system in the same rounds.
#include "bench/driver/tiers.h"

#include <stdlib.h>
#include <sys/vfs.h>

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "bench/driver/fio.h"
#include "bench/driver/mmap_rows.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kDepths[] = {8, 32, 128};
constexpr std::uint32_t kColdBatches[] = {48, 1536, 24576};
constexpr std::uint32_t kFullDepth = 128;
constexpr std::uint32_t kBatchRows = 1536;
constexpr std::uint32_t kTierOutstanding = 4;
constexpr long kTmpfs = 0x01021994;

// TMPDIR, else /var/tmp, or the build folder where that is memory.
absl::StatusOr<std::string> FolderOnDisk(const BenchOptions& options) {
  const char* const chosen = getenv("TMPDIR");
  for (const std::string& where :
       {std::string(chosen == nullptr ? "/var/tmp" : chosen), options.bin_dir}) {
    struct statfs info {};
    if (statfs(where.c_str(), &info) != 0 || info.f_type == kTmpfs) continue;
    std::string path = where + "/engram-bench-tiers-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return absl::UnavailableError("neither TMPDIR (or /var/tmp) nor the build folder is on a disk");
}

Figure RatioOf(const TiersScene& scene, std::string name, std::string against, double goal) {
  Figure figure;
  figure.figure = std::move(name);
  figure.reference = std::move(against);
  figure.goal = goal;
  figure.seed = scene.options.seed;
  return figure;
}

// Device reads a second of rows that clients ask for, with several batches outstanding so that the
// ring is full, over fio's at the same depth.
absl::Status MeasureDepth(TiersScene& scene, std::uint32_t depth) {
  const std::string name = absl::StrCat("nvme_vs_fio_", depth);
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name.c_str());
  auto node = scene.Node(0, depth);
  if (!node.ok()) return node.status();
  auto path = (*node)->Path(name, kBatchRows, kTierOutstanding);
  if (!path.ok()) return path.status();
  Figure ratio =
      RatioOf(scene, name, absl::StrCat("fio io_uring randread 4k, depth ", depth), 0.85);
  std::vector<double> ratios, reads, floors;
  for (int round = 0; round < scene.rounds(); ++round) {
    auto fio = FioReadsPerSecond((*node)->Files(), depth, scene.fio_seconds());
    if (!fio.ok()) return fio.status();
    BatchSet set(scene.shape, kBatchRows, 2 * kTierOutstanding,
                 scene.options.seed + static_cast<std::uint64_t>(round));
    const std::uint64_t before = (*node)->store()->counters().ring.blocks;
    auto measured = Measure(**path, set, scene.budget());
    if (!measured.ok()) return measured.status();
    const auto blocks = static_cast<double>((*node)->store()->counters().ring.blocks - before);
    const double rate =
        measured->rows_per_second * blocks / static_cast<double>(measured->rows_verified);
    ratios.push_back(rate / *fio);
    reads.push_back(rate / 1e3);
    floors.push_back(*fio / 1e3);
    ratio.rows_verified += measured->rows_verified;
  }
  Figure rate = RatioOf(scene, absl::StrCat("nvme_reads_", depth), "", 0);
  Figure floor = RatioOf(scene, absl::StrCat("fio_reads_", depth), "", 0);
  rate.unit = floor.unit = "kreads/s";
  Summarise(ratios, &ratio);
  Summarise(reads, &rate);
  Summarise(floors, &floor);
  for (Figure& figure : {std::ref(ratio), std::ref(rate), std::ref(floor)})
    scene.figures.push_back(figure);
  return absl::OkStatus();
}

// One batch at a time, nothing cached, over one thread that reads a mapping whose pages are cold.
absl::Status MeasureCold(TiersScene& scene, TierNode& node, MmapRows& mapped, std::uint32_t rows) {
  const std::string name = absl::StrCat("nvme_vs_mmap_cold_", rows);
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name.c_str());
  auto path = node.Path(name, rows, 1);
  if (!path.ok()) return path.status();
  Figure ratio = RatioOf(scene, name, "one thread, mmap, page cache dropped", 2);
  std::vector<double> ratios, rates, baselines;
  for (int round = 0; round < scene.rounds(); ++round) {
    BatchSet set(scene.shape, rows, rows < kBatchRows ? 8 : 1,
                 scene.options.seed + static_cast<std::uint64_t>(round));
    mapped.Drop();
    auto baseline = Measure(mapped, set, scene.budget());
    if (!baseline.ok()) return baseline.status();
    mapped.Drop();
    auto measured = Measure(**path, set, scene.budget());
    if (!measured.ok()) return measured.status();
    ratios.push_back(measured->rows_per_second / baseline->rows_per_second);
    rates.push_back(measured->rows_per_second / 1e3);
    baselines.push_back(baseline->rows_per_second / 1e3);
    ratio.rows_verified += measured->rows_verified + baseline->rows_verified;
  }
  Figure rate = RatioOf(scene, absl::StrCat("nvme_cold_", rows), "", 0);
  Figure baseline = RatioOf(scene, absl::StrCat("mmap_cold_", rows), "", 0);
  rate.unit = baseline.unit = "krows/s";
  Summarise(ratios, &ratio);
  Summarise(rates, &rate);
  Summarise(baselines, &baseline);
  for (Figure& figure : {std::ref(ratio), std::ref(rate), std::ref(baseline)})
    scene.figures.push_back(figure);
  return absl::OkStatus();
}

absl::Status MeasureColdBatches(TiersScene& scene) {
  bool wanted = false;
  for (const std::uint32_t rows : kColdBatches)
    wanted = wanted || Wanted(scene.options, absl::StrCat("nvme_vs_mmap_cold_", rows));
  if (!wanted) return absl::OkStatus();
  auto mapped = MmapRows::Create(scene.folder + "/mapped.rows", scene.shape);
  if (!mapped.ok()) return mapped.status();
  auto node = scene.Node(0, kFullDepth);
  if (!node.ok()) return node.status();
  for (const std::uint32_t rows : kColdBatches) {
    if (absl::Status ok = MeasureCold(scene, **node, **mapped, rows); !ok.ok()) return ok;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TiersScene>> TiersScene::Open(const BenchOptions& options) {
  auto scene = std::make_unique<TiersScene>();
  scene->options = options;
  auto table = TierTable(scene->base_rows(), 7);
  if (!table.ok()) return table.status();
  scene->table = *std::move(table);
  scene->shape = {scene->table.spec.Rows(), scene->table.spec.RowBytes(), scene->table.source.seed};
  auto folder = FolderOnDisk(options);
  if (!folder.ok()) return folder.status();
  scene->folder = *std::move(folder);
  std::printf("%s\n%.2f GiB of rows in %s\n\n", DescribeMachine().c_str(),
              static_cast<double>(scene->table_bytes()) / (std::uint64_t{1} << 30),
              scene->folder.c_str());
  return scene;
}

TiersScene::~TiersScene() {
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
}

absl::StatusOr<std::unique_ptr<TierNode>> TiersScene::Node(std::uint64_t cache_bytes,
                                                           std::uint32_t depth) const {
  TierNode::Options node;
  node.directory = folder;
  node.cache_bytes = cache_bytes;
  node.depth = depth;
  return TierNode::Open(table, node);
}

absl::Status RunTiers(const BenchOptions& options) {
  auto scene = TiersScene::Open(options);
  if (!scene.ok()) return scene.status();
  for (const std::uint32_t depth : kDepths) {
    if (absl::Status ok = MeasureDepth(**scene, depth); !ok.ok()) return ok;
  }
  if (absl::Status ok = MeasureColdBatches(**scene); !ok.ok()) return ok;
  if (absl::Status ok = MeasureTierCache(**scene); !ok.ok()) return ok;
  if (absl::Status ok = MeasureTierMoves(**scene); !ok.ok()) return ok;
  PrintTable((*scene)->figures);
  return options.json.empty() ? absl::OkStatus() : WriteJson((*scene)->figures, options.json);
}

}  // namespace engram::bench
