// Moves of a whole table between the tiers of a node, while a client reads it, over what fio gives
// sequentially on the same file system in the same rounds.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/driver/fio.h"
#include "bench/driver/moving_node.h"
#include "bench/driver/tiers.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kStepRows = 192;  // few beside what a device can give
constexpr Duration kStepEvery = std::chrono::milliseconds(20);
constexpr Duration kMovePatience = std::chrono::seconds(300);

// The rows of a small decode step every 20 ms, each verified, until `done`.
class Steps {
 public:
  Steps(MovingNode& node, ReadPath& path, const TableShape& shape, std::uint64_t seed)
      : node_(node), path_(path), set_(shape, kStepRows, 1, seed) {}

  template <class Done>
  absl::Status Until(Done done) {
    const Clock& clock = SystemClock::Get();
    const Instant deadline = clock.Now() + kMovePatience;
    while (true) {
      const absl::StatusOr<bool> ended = done();
      if (!ended.ok()) return ended.status();
      if (*ended) return absl::OkStatus();
      if (clock.Now() > deadline) return absl::DeadlineExceededError("the move does not end");
      const Instant next = clock.Now() + kStepEvery;
      if (absl::Status ok = node_.Renew(); !ok.ok()) return ok;
      if (absl::Status ok = path_.Read(set_.Draw()); !ok.ok()) return ok;
      if (absl::Status ok = set_.Verify(); !ok.ok()) return ok;
      rows_verified_ += set_.rows();
      std::this_thread::sleep_for(next - clock.Now());
    }
  }
  std::uint64_t rows_verified() const { return rows_verified_; }

 private:
  MovingNode& node_;
  ReadPath& path_;
  BatchSet set_;
  std::uint64_t rows_verified_ = 0;
};

// Bytes a second of moving everything from one tier to the other.
absl::StatusOr<double> Move(const TiersScene& scene, MovingNode& node, Steps& steps, Tier from,
                            Tier to) {
  const Instant start = SystemClock::Get().Now();
  node.MoveTo(to);
  if (absl::Status ok = steps.Until([&] { return node.ServesFrom(to); }); !ok.ok()) return ok;
  const double seconds = Seconds(SystemClock::Get().Now() - start);
  absl::Status left = steps.Until([&] { return absl::StatusOr<bool>(node.HasLeft(from)); });
  if (!left.ok()) return left;
  return static_cast<double>(scene.table_bytes()) / seconds;
}

struct Direction {
  const char* name;
  Tier from, to;
  Sequential floor;
  const char* against;
  std::vector<double> ratios = {}, rates = {}, floors = {};
};

void Report(TiersScene& scene, const Direction& direction, std::uint64_t rows_verified) {
  constexpr double kMiB = 1 << 20;
  const auto add = [&](std::string name, std::vector<double> rounds, const char* unit,
                       double scale) {
    Figure figure;
    figure.figure = std::move(name);
    figure.unit = unit;
    figure.seed = scene.options.seed;
    for (double& one : rounds) one /= scale;
    Summarise(std::move(rounds), &figure);
    scene.figures.push_back(std::move(figure));
    return &scene.figures.back();
  };
  Figure* ratio =
      add(absl::StrCat("tier_move_vs_slower_", direction.name), direction.ratios, "ratio", 1);
  ratio->reference = direction.against;
  ratio->goal = 0.8;
  ratio->rows_verified = rows_verified;
  add(absl::StrCat("tier_move_", direction.name), direction.rates, "MiB/s", kMiB);
  add(absl::StrCat("fio_sequential_", direction.name), direction.floors, "MiB/s", kMiB);
}

}  // namespace

absl::Status MeasureTierMoves(TiersScene& scene) {
  if (!Wanted(scene.options, "tier_move_vs_slower")) return absl::OkStatus();
  std::fprintf(stderr, "  tier_move_vs_slower\n");
  const std::string directory = scene.folder + "/moving", file = scene.folder + "/sequential";
  std::filesystem::create_directory(directory);
  auto node = MovingNode::Start(scene.table, directory);
  if (!node.ok()) return node.status();
  auto path = (*node)->Path(kStepRows);
  if (!path.ok()) return path.status();
  Steps steps(**node, **path, scene.shape, scene.options.seed);
  Direction directions[] = {{"to_nvme", Tier::kDram, Tier::kNvme, Sequential::kWrite,
                             "fio write 1m, depth 4, direct; 9.6 k rows/s read meanwhile"},
                            {"to_dram", Tier::kNvme, Tier::kDram, Sequential::kRead,
                             "fio read 1m, depth 4, direct; 9.6 k rows/s read meanwhile"}};
  for (int round = 0; round < scene.rounds(); ++round) {
    for (Direction& way : directions) {
      auto floor = FioBytesPerSecond(file, scene.table_bytes(), way.floor);
      if (!floor.ok()) return floor.status();
      auto rate = Move(scene, **node, steps, way.from, way.to);
      if (!rate.ok()) return rate.status();
      way.ratios.push_back(*rate / *floor);
      way.rates.push_back(*rate);
      way.floors.push_back(*floor);
    }
  }
  for (const Direction& way : directions) Report(scene, way, steps.rows_verified());
  return absl::OkStatus();
}

}  // namespace engram::bench
