// Figures of the row caches (docs/cache.md). One cold pass has one right answer: no rounds.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/driver/cache_trace.h"
#include "bench/driver/commands.h"
#include "client/cache/host_cache.h"
#include "client/cache/private_cache.h"

namespace engram::bench {
namespace {

using client::CacheUse;

struct Size {
  const char* name;
  std::uint64_t bytes;
  double goal;  // rows read a token; 0: none
};
constexpr std::uint64_t kMiB = 1 << 20;
constexpr Size kSizes[] = {{"16mib", 16 * kMiB, 0},
                           {"64mib", 64 * kMiB, 23.5},
                           {"256mib", 256 * kMiB, 0},
                           {"1gib", 1024 * kMiB, 17.0}};
constexpr int kProcesses = 4;

struct Measuring {
  const BenchOptions& options;
  CacheTrace trace;
  std::vector<Figure> figures;

  void Add(std::string name, double value, std::string unit, std::string reference, double goal) {
    Figure figure;
    figure.figure = std::move(name);
    figure.unit = std::move(unit);
    figure.reference = std::move(reference);
    figure.goal = goal;
    figure.smaller_is_better = true;
    figure.seed = options.seed;
    figure.trace = "kjv, sqlite3_c, tang300";
    Summarise({value}, &figure);
    figures.push_back(std::move(figure));
  }
};

absl::StatusOr<std::unique_ptr<client::PrivateCache>> OpenPrivate(std::uint64_t bytes) {
  client::PrivateCache::Options options;
  options.bytes = bytes;
  options.row_bytes = kCacheRowBytes;
  options.unit_rows = kUnitRows;
  return client::PrivateCache::Open(options);
}

double Reads(std::uint64_t misses, std::uint64_t tokens) {
  return static_cast<double>(misses) * kUnitRows / static_cast<double>(tokens);
}

// The three traces in turn, against the same number of units by least recent use.
absl::Status ColdPass(Measuring& measuring, const Size& size) {
  const std::string name = absl::StrCat("reads_per_token_cache_", size.name);
  const std::string points = absl::StrCat("cache_points_below_lru_", size.name);
  if (!Wanted(measuring.options, name) && !Wanted(measuring.options, points))
    return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name.c_str());
  auto cache = OpenPrivate(size.bytes);
  if (!cache.ok()) return cache.status();
  LruUnits lru((*cache)->slots());
  CacheUser user(**cache, CacheUse::kStep);
  std::uint64_t misses = 0, lru_misses = 0, tokens = 0;
  for (const TextTrace& text : measuring.trace.texts()) {
    const std::uint64_t before = misses;
    measuring.trace.ForEachUnit(text, 0, text.tokens.size(), [&](std::span<const RowId> unit) {
      misses += user.Use(unit) ? 0 : 1;
      lru_misses += lru.Use(client::HashOf(unit)) ? 0 : 1;
    });
    tokens += text.tokens.size();
    measuring.Add(absl::StrCat(name, "_", text.name), Reads(misses - before, text.tokens.size()),
                  "rows", "48 without a cache", 0);
  }
  measuring.Add(name, Reads(misses, tokens), "rows",
                absl::StrCat("LRU ", Reads(lru_misses, tokens)), size.goal);
  const double units = static_cast<double>(tokens) * kUnitsPerToken;
  measuring.Add(points,
                100 * (static_cast<double>(misses) - static_cast<double>(lru_misses)) / units,
                "points", "LRU of as many units", 0.5);
  return absl::OkStatus();
}

// 64 requests decode the first text from offsets of their own.
double DecodeHits(CacheTrace& trace, CacheUser& user, std::size_t from, std::size_t steps) {
  constexpr std::size_t kBatch = 64;
  const TextTrace& text = trace.texts()[0];
  std::uint64_t hits = 0;
  for (std::size_t step = from; step < from + steps; ++step) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      const std::size_t at = (i * (text.tokens.size() / kBatch) + step) % text.tokens.size();
      trace.ForEachUnit(text, at, 1, [&](std::span<const RowId> unit) { hits += user.Use(unit); });
    }
  }
  return 100.0 * static_cast<double>(hits) / static_cast<double>(steps * kBatch * kUnitsPerToken);
}

absl::Status Pollution(Measuring& measuring, const Size& size) {
  const std::string name = absl::StrCat("cache_points_lost_to_prefill_", size.name);
  if (!Wanted(measuring.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name.c_str());
  constexpr std::size_t kWarm = 4000, kSteps = 500, kPrefill = 100'000;
  std::array<double, 2> hits;
  for (const bool prefill : {false, true}) {
    auto cache = OpenPrivate(size.bytes);
    if (!cache.ok()) return cache.status();
    CacheUser decode(**cache, CacheUse::kStep), bulk(**cache, CacheUse::kBulk);
    DecodeHits(measuring.trace, decode, 0, kWarm);
    if (prefill)
      measuring.trace.ForEachUnit(measuring.trace.texts()[1], 0, kPrefill,
                                  [&](std::span<const RowId> unit) { bulk.Use(unit); });
    hits[prefill ? 1 : 0] = DecodeHits(measuring.trace, decode, kWarm, kSteps);
  }
  measuring.Add(name, hits[0] - hits[1], "points",
                absl::StrCat("decode hits ", hits[0], " % without the prefill"), 2.0);
  return absl::OkStatus();
}

// Of this thread: nothing here waits, and what else runs on the machine does not count.
double CpuMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Key, lookup and addressing, without copying rows: prefill-like, many tokens at once.
absl::Status Lookup(Measuring& measuring) {
  const char* const name = "cache_lookup_us_per_token";
  if (!Wanted(measuring.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name);
  auto cache = OpenPrivate(1024 * kMiB);
  if (!cache.ok()) return cache.status();
  const TextTrace& text = measuring.trace.texts()[0];
  CacheUser user(**cache, CacheUse::kStep);
  measuring.trace.ForEachUnit(text, 0, text.tokens.size(),
                              [&](std::span<const RowId> unit) { user.Use(unit); });
  constexpr std::size_t kTokens = 64;
  constexpr std::size_t kUnits = kTokens * kUnitsPerToken;
  std::vector<RowId> rows(kUnits * kUnitRows);
  std::vector<client::CacheProbe> probes(kUnits);
  std::vector<double> rounds;
  const std::size_t steps = text.tokens.size() / 2 / kTokens;
  for (int round = 0; round < 5; ++round) {
    const double begin = CpuMicroseconds();
    for (std::size_t step = 0; step < steps; ++step) {
      const std::span<const std::int64_t> tokens(text.tokens.data() + step * kTokens, kTokens);
      absl::Status ok = measuring.trace.addressing().Rows({tokens, {}, {}, {}}, rows);
      if (!ok.ok()) return ok;
      for (std::size_t i = 0; i < kUnits; ++i) {
        probes[i].ids = {rows.data() + i * kUnitRows, kUnitRows};
        probes[i].hash = client::HashOf(probes[i].ids);
      }
      (*cache)->Find(probes, CacheUse::kStep);
    }
    rounds.push_back((CpuMicroseconds() - begin) / static_cast<double>(steps * kTokens));
  }
  measuring.Add(name, 0, "us", "48 rows, 1 GiB; processor time", 0.7);
  Summarise(std::move(rounds), &measuring.figures.back());
  return absl::OkStatus();
}

// One of several replicas, each at another place of the same texts.
std::uint64_t MissesOf(CacheTrace& trace, std::size_t texts, client::RowCache& cache, int replica) {
  CacheUser user(cache, CacheUse::kStep);
  std::uint64_t misses = 0;
  for (std::size_t i = 0; i < texts; ++i) {
    const TextTrace& text = trace.texts()[i];
    const std::size_t first = text.tokens.size() / kProcesses * static_cast<std::size_t>(replica);
    const auto use = [&](std::span<const RowId> unit) { misses += user.Use(unit) ? 0 : 1; };
    trace.ForEachUnit(text, first, text.tokens.size() - first, use);
    trace.ForEachUnit(text, 0, first, use);
  }
  return misses;
}

// In a process of its own; writes how many misses there were to `fd`.
void RunReplica(CacheTrace& trace, std::size_t texts, const client::HostCache::Options& options,
                int replica, int fd) {
  std::uint64_t misses = ~std::uint64_t{0};
  if (auto cache = client::HostCache::Open(options); cache.ok())
    misses = MissesOf(trace, texts, **cache, replica);
  [[maybe_unused]] const ssize_t wrote = write(fd, &misses, sizeof misses);
  _exit(0);
}

absl::StatusOr<std::uint64_t> HostMisses(CacheTrace& trace, std::size_t texts,
                                         std::uint64_t bytes) {
  client::HostCache::Options options;
  options.bytes = bytes;
  options.tenant = absl::StrCat("bench ", getpid());
  options.row_bytes = kCacheRowBytes;
  options.unit_rows = kUnitRows;
  auto keep = client::HostCache::Open(options);
  if (!keep.ok()) return keep.status();
  int pipes[2];
  if (pipe(pipes) != 0) return absl::InternalError("no pipe for the replicas");
  std::uint64_t sum = 0;
  bool all = true;
  std::vector<pid_t> children;
  for (int replica = 0; replica < kProcesses; ++replica) {
    const pid_t child = fork();
    if (child == 0) RunReplica(trace, texts, options, replica, pipes[1]);
    if (child > 0) children.push_back(child);
    all &= child > 0;
  }
  close(pipes[1]);
  for (std::size_t i = 0; i < children.size(); ++i) {
    std::uint64_t misses = ~std::uint64_t{0};
    if (read(pipes[0], &misses, sizeof misses) != sizeof misses || misses + 1 == 0) all = false;
    sum += misses;
  }
  close(pipes[0]);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  if (!all) return absl::InternalError("a replica of the host cache's measurement failed");
  return sum;
}

absl::Status FourProcesses(Measuring& measuring, const Size& size) {
  const std::string name = absl::StrCat("reads_per_token_host_cache_4_processes_", size.name);
  if (!Wanted(measuring.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name.c_str());
  const std::size_t texts = measuring.options.quick ? 1 : measuring.trace.texts().size();
  std::uint64_t tokens = 0, alone = 0;
  for (std::size_t i = 0; i < texts; ++i)
    tokens += kProcesses * measuring.trace.texts()[i].tokens.size();
  auto host = HostMisses(measuring.trace, texts, size.bytes);
  if (!host.ok()) return host.status();
  for (int replica = 0; replica < kProcesses; ++replica) {
    auto cache = OpenPrivate(size.bytes / kProcesses);
    if (!cache.ok()) return cache.status();
    alone += MissesOf(measuring.trace, texts, **cache, replica);
  }
  measuring.Add(name, Reads(*host, tokens), "rows",
                absl::StrCat("four private caches of a quarter: ", Reads(alone, tokens)), 0);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Figure>> MeasureCaches(const BenchOptions& options) {
  const auto any = {"reads_per_token_", "cache_"};
  if (std::none_of(any.begin(), any.end(), [&](std::string_view prefix) {
        return prefix.starts_with(options.only) || options.only.starts_with(prefix);
      }))
    return std::vector<Figure>();
  const std::string root = options.sources.empty() ? options.bin_dir + "/../.." : options.sources;
  auto trace = CacheTrace::Open(root + "/bench/traces", root + "/tests/data/dsv41_token_map.i32");
  if (!trace.ok()) return trace.status();
  Measuring measuring{options, *std::move(trace), {}};
  for (const Size& size : kSizes) {
    if (options.quick && size.goal == 0) continue;
    if (absl::Status ok = ColdPass(measuring, size); !ok.ok()) return ok;
    if (absl::Status ok = Pollution(measuring, size); !ok.ok()) return ok;
    if (size.goal == 0) continue;
    if (absl::Status ok = FourProcesses(measuring, size); !ok.ok()) return ok;
  }
  if (absl::Status ok = Lookup(measuring); !ok.ok()) return ok;
  return std::move(measuring.figures);
}

}  // namespace engram::bench
