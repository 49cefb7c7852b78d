// The NVMe tier with a row cache of a tenth of the table, on real text: how near it comes to what
// its misses allow, and its misses against those of the least recently used rows of as many bytes.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "absl/strings/str_cat.h"
#include "bench/driver/cache_trace.h"
#include "bench/driver/fio.h"
#include "bench/driver/tiers.h"
#include "engram/synthetic.h"

namespace engram::bench {
namespace {

using poolserver::nvme::RowCache;

constexpr std::uint32_t kChunkTokens = 32, kRowsAToken = 48;
constexpr std::uint32_t kChunkRows = kChunkTokens * kRowsAToken;
constexpr std::uint32_t kChunksOutstanding = 4;
constexpr std::uint32_t kCacheDepth = 128;
constexpr double kCacheShare = 0.1;

// Batches of rows as a client asks for them: each once.
class TextBatches {
 public:
  TextBatches(CacheTrace* trace, const TableShape& shape, std::uint32_t batches)
      : trace_(trace),
        shape_(shape),
        ids_(batches),
        out_(std::size_t{batches} * kChunkRows * shape.row_bytes),
        batches_(batches),
        expected_(shape.row_bytes) {}

  // The rows of the next tokens of the trace; after its end it starts anew.
  std::span<const Batch> Draw() {
    const TextTrace& text = trace_->texts()[0];
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (at_ + kChunkTokens > text.tokens.size()) at_ = 0;
      ids_[i].clear();
      trace_->ForEachUnit(text, at_, kChunkTokens, [&](std::span<const RowId> unit) {
        ids_[i].insert(ids_[i].end(), unit.begin(), unit.end());
      });
      at_ += kChunkTokens;
      std::sort(ids_[i].begin(), ids_[i].end());
      ids_[i].erase(std::unique(ids_[i].begin(), ids_[i].end()), ids_[i].end());
      batches_[i] = {ids_[i], out_.data() + i * kChunkRows * shape_.row_bytes};
    }
    return batches_;
  }

  absl::Status Verify() const {
    for (const Batch& batch : batches_) {
      for (std::size_t i = 0; i < batch.ids.size(); ++i) {
        FillSyntheticRow(shape_.seed, batch.ids[i], expected_);
        if (!std::equal(expected_.begin(), expected_.end(), batch.out + i * shape_.row_bytes))
          return absl::DataLossError(absl::StrCat("row ", batch.ids[i].value(), " was read wrong"));
      }
    }
    return absl::OkStatus();
  }

  std::uint64_t rows() const {
    std::uint64_t rows = 0;
    for (const auto& ids : ids_) rows += ids.size();
    return rows;
  }

 private:
  CacheTrace* const trace_;
  const TableShape shape_;
  std::size_t at_ = 0;
  std::vector<std::vector<RowId>> ids_;
  std::vector<std::byte> out_;
  std::vector<Batch> batches_;
  mutable std::vector<std::byte> expected_;
};

struct TextRate {
  double rows_per_second = 0;
  std::uint64_t rows = 0;
};

// Reads until `budget` of timed reading has passed, or `most` rows.
absl::StatusOr<TextRate> ReadText(ReadPath& path, TextBatches& text, Duration budget,
                                  std::uint64_t most) {
  const Clock& clock = SystemClock::Get();
  TextRate rate;
  Duration spent{0};
  while (spent < budget && rate.rows < most) {
    const auto batches = text.Draw();
    const Instant begin = clock.Now();
    const absl::Status read = path.Read(batches);
    spent += clock.Now() - begin;
    if (!read.ok()) return read;
    if (absl::Status right = text.Verify(); !right.ok()) return right;
    rate.rows += text.rows();
  }
  rate.rows_per_second = static_cast<double>(rate.rows) / Seconds(spent);
  return rate;
}

// Rows a second of the same batches from memory, by the same gather over the same socket.
absl::StatusOr<std::unique_ptr<TierNode>> MemoryNode(const TiersScene& scene,
                                                     std::unique_ptr<BenchTable>* rows) {
  auto memory = BenchTable::Create(scene.shape.rows, scene.shape.row_bytes,
                                   scene.shape.row_bytes + kSealBytes, scene.shape.seed);
  if (!memory.ok()) return memory.status();
  *rows = *std::move(memory);
  TierNode::Options options;
  options.memory = rows->get();
  return TierNode::Open(scene.table, options);
}

absl::Status AgainstModel(TiersScene& scene, CacheTrace& trace) {
  const char* const name = "nvme_cached_vs_model";
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name);
  std::unique_ptr<BenchTable> rows;
  auto memory = MemoryNode(scene, &rows);
  if (!memory.ok()) return memory.status();
  const auto cache_bytes =
      static_cast<std::uint64_t>(static_cast<double>(scene.table_bytes()) * kCacheShare);
  auto node = scene.Node(cache_bytes, kCacheDepth);
  if (!node.ok()) return node.status();
  auto dram = (*memory)->Path("stream_dram", kChunkRows, kChunksOutstanding);
  if (!dram.ok()) return dram.status();
  auto path = (*node)->Path(name, kChunkRows, kChunksOutstanding);
  if (!path.ok()) return path.status();
  TextBatches text(&trace, scene.shape, 4 * kChunksOutstanding);
  // Until the cache is full and has seen some of it again.
  const std::uint64_t warm = 4 * cache_bytes / (scene.shape.row_bytes + kSealBytes);
  auto warmed = ReadText(**path, text, std::chrono::seconds(120), warm);
  if (!warmed.ok()) return warmed.status();

  Figure ratio, cached, reads;
  std::vector<double> ratios, rates, reads_a_row;
  for (int round = 0; round < scene.rounds(); ++round) {
    auto fio = FioReadsPerSecond((*node)->Files(), kCacheDepth, scene.fio_seconds());
    if (!fio.ok()) return fio.status();
    auto from_memory = ReadText(**dram, text, scene.budget() / 4, ~std::uint64_t{0});
    if (!from_memory.ok()) return from_memory.status();
    const std::uint64_t before = (*node)->store()->counters().ring.blocks;
    auto measured = ReadText(**path, text, 2 * scene.budget(), ~std::uint64_t{0});
    if (!measured.ok()) return measured.status();
    const double misses = static_cast<double>((*node)->store()->counters().ring.blocks - before) /
                          static_cast<double>(measured->rows);
    const double model = std::min(from_memory->rows_per_second, *fio / misses);
    ratios.push_back(measured->rows_per_second / model);
    rates.push_back(measured->rows_per_second / 1e3);
    reads_a_row.push_back(misses);
    ratio.rows_verified += measured->rows + from_memory->rows;
  }
  ratio.figure = name;
  ratio.reference = "min(stream from memory, fio at depth 128 / device reads a row)";
  ratio.goal = 0.8;
  cached.figure = "nvme_cached_rate";
  cached.unit = "krows/s";
  reads.figure = "nvme_device_reads_a_row";
  ratio.trace = cached.trace = reads.trace = "kjv";
  ratio.seed = cached.seed = reads.seed = scene.options.seed;
  Summarise(ratios, &ratio);
  Summarise(rates, &cached);
  Summarise(reads_a_row, &reads);
  scene.figures.insert(scene.figures.end(), {ratio, cached, reads});
  return absl::OkStatus();
}

// One cold pass of the three traces through the cache alone: one right answer, no rounds.
absl::Status AgainstLru(TiersScene& scene, CacheTrace& trace) {
  const char* const name = "nvme_misses_vs_lru";
  if (!Wanted(scene.options, name)) return absl::OkStatus();
  std::fprintf(stderr, "  %s\n", name);
  RowCache::Options options;
  options.bytes =
      static_cast<std::uint64_t>(static_cast<double>(scene.table_bytes()) * kCacheShare);
  auto cache = RowCache::Open(options);
  if (!cache.ok()) return cache.status();
  LruUnits lru(static_cast<std::uint32_t>((*cache)->rows()));
  LruUnits bare_lru(static_cast<std::uint32_t>(options.bytes / options.row_bytes));
  const std::vector<std::byte> row(options.row_bytes);
  std::uint64_t uses = 0, misses = 0, lru_misses = 0, bare_misses = 0;
  for (const TextTrace& text : trace.texts()) {
    const std::size_t tokens = scene.options.quick
                                   ? std::min<std::size_t>(text.tokens.size(), 20'000)
                                   : text.tokens.size();
    trace.ForEachUnit(text, 0, tokens, [&](std::span<const RowId> unit) {
      for (const RowId id : unit) {
        ++uses;
        lru_misses += lru.Use(id.value()) ? 0 : 1;
        bare_misses += bare_lru.Use(id.value()) ? 0 : 1;
        if ((*cache)->Read(id.value(), [](const std::byte*) {})) continue;
        ++misses;
        (*cache)->Fill(id.value(), row);
      }
    });
  }
  const auto ratio_of = [&](const char* figure, std::string against, std::uint64_t of,
                            double goal) {
    Figure ratio;
    ratio.figure = figure;
    ratio.reference = std::move(against);
    ratio.goal = goal;
    ratio.smaller_is_better = true;
    ratio.trace = "kjv, sqlite3_c, tang300";
    Summarise({static_cast<double>(misses) / static_cast<double>(of)}, &ratio);
    scene.figures.push_back(ratio);
  };
  ratio_of(name, absl::StrCat("LRU of as many rows: misses ", lru_misses, " of ", uses), lru_misses,
           1);
  ratio_of("nvme_misses_vs_bare_lru",
           absl::StrCat("LRU of as many bytes of rows, its index for nothing: ", bare_misses),
           bare_misses, 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureTierCache(TiersScene& scene) {
  const std::string root =
      scene.options.sources.empty() ? scene.options.bin_dir + "/../.." : scene.options.sources;
  auto trace = CacheTrace::Open(root + "/bench/traces", root + "/tests/data/dsv41_token_map.i32",
                                scene.base_rows());
  if (!trace.ok()) return trace.status();
  if (absl::Status ok = AgainstModel(scene, *trace); !ok.ok()) return ok;
  return AgainstLru(scene, *trace);
}

}  // namespace engram::bench
