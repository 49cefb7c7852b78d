// Figures that are not a read path: addressing, and loading against dd.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/local_pool.h"
#include "engram/addressing.h"
#include "engram/clock.h"
#include "engram/random.h"

namespace engram::bench {
namespace {

constexpr std::uint32_t kTokens = 4096;
constexpr std::uint64_t kSample = 100'000;  // rows of a loaded table that are looked at

absl::StatusOr<std::unique_ptr<Addressing>> RealGeometry() {
  EngramGeometry geometry;  // DeepSeek-V4.1-Flash
  TokenMap map(geometry.raw_vocab);
  for (std::size_t i = 0; i < map.size(); ++i) {
    map[i] = static_cast<std::int32_t>(
        i < geometry.compressed_vocab ? i : i - geometry.compressed_vocab);
  }
  geometry.token_map_digest = Digest(map);
  auto spec = MakeEngramSpec(geometry);
  if (!spec.ok()) return spec.status();
  return Addressing::Make(*spec, std::move(map));
}

// Reads of the next run come from the disk. False where this user may not.
bool DropCaches() {
  sync();
  std::ofstream file("/proc/sys/vm/drop_caches");
  file << "3\n";
  file.close();
  return static_cast<bool>(file);
}

}  // namespace

absl::StatusOr<Figure> MeasureAddressing(const BenchOptions& options) {
  auto addressing = RealGeometry();
  if (!addressing.ok()) return addressing.status();
  SeededRandom random(options.seed);
  std::vector<std::int64_t> tokens(kTokens);
  std::vector<RowId> out(std::size_t{kTokens} * (*addressing)->columns());
  std::vector<double> rounds;
  const Clock& clock = SystemClock::Get();
  for (int round = 0; round < 9; ++round) {
    for (std::int64_t& token : tokens) token = static_cast<std::int64_t>(random.Below(129'280));
    constexpr int kRepeats = 20;
    const Instant begin = clock.Now();
    for (int i = 0; i < kRepeats; ++i) {
      if (absl::Status ok = (*addressing)->Rows({tokens, {}, {}, {}}, out); !ok.ok()) return ok;
    }
    rounds.push_back(1e6 * Seconds(clock.Now() - begin) / kRepeats / kTokens);
  }
  Figure figure;
  figure.figure = "addressing_us_per_token";
  figure.unit = "us";
  figure.reference = "48 rows, V4.1 geometry";
  figure.goal = 0.5;
  figure.smaller_is_better = true;
  figure.seed = options.seed;
  Summarise(rounds, &figure);
  return figure;
}

absl::StatusOr<Figure> MeasureLoad(const BenchOptions& options) {
  const std::uint64_t vocab = options.quick ? 16'000 : 160'000;
  auto pool =
      LocalPool::Up(options.bin_dir, 1, options.quick ? "256MiB" : "2304MiB", "mapped,stream");
  if (!pool.ok()) return pool.status();
  const std::string checkpoint = (*pool)->dir() + "/checkpoint";
  if (absl::Status ok = RunCheckpoint({checkpoint, vocab, options.seed, ""}); !ok.ok()) return ok;
  const bool cold = DropCaches();
  const Clock& clock = SystemClock::Get();
  std::vector<double> ratios;
  std::uint64_t verified = 0;
  // The first round is not counted: on a virtual machine it is the first to touch the memory, and
  // waits for the host to find the pages.
  for (int round = 0; round < 4; ++round) {
    Duration dd{0};
    for (const auto& file : std::filesystem::directory_iterator(checkpoint)) {
      if (file.path().extension() != ".safetensors") continue;
      const Instant begin = clock.Now();
      auto done = RunProgram({"dd", absl::StrCat("if=", file.path().string()), "of=/dev/null",
                              "bs=8M", "iflag=direct"});
      if (!done.ok()) return done.status();
      dd += clock.Now() - begin;
    }
    if (cold) DropCaches();
    const std::string name = absl::StrCat("load@", round);
    const Instant begin = clock.Now();
    auto loaded = (*pool)->Ctl({"load", "table", name, "--checkpoint", checkpoint, "--wait"});
    if (!loaded.ok()) return loaded.status();
    if (round > 0) ratios.push_back(Seconds(dd) / Seconds(clock.Now() - begin));
    auto right = (*pool)->Ctl({"verify", "table", name, "--sample", absl::StrCat(kSample)});
    if (!right.ok()) return right.status();
    verified += kSample;
    auto deleted = (*pool)->Ctl({"delete", "table", name, "--yes"});
    if (!deleted.ok()) return deleted.status();
    auto gone = (*pool)->Ctl({"wait", "table", name, "--for", "deleted", "--timeout", "30s"});
    if (!gone.ok()) return gone.status();
  }
  Figure figure;
  figure.figure = "load_vs_dd";
  figure.reference =
      cold ? "dd bs=8M iflag=direct, caches dropped" : "dd bs=8M iflag=direct, caches not dropped";
  figure.goal = 0.8;
  figure.seed = options.seed;
  figure.rows_verified = verified;
  Summarise(ratios, &figure);
  return figure;
}

}  // namespace engram::bench
