#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/driver/paths.h"
#include "engram/synthetic.h"

namespace engram::bench {
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
constexpr std::size_t kAhead = 8;

[[gnu::always_inline]] inline void Prefetch(const std::byte* row, std::uint32_t bytes) {
  for (std::uint32_t at = 0; at < bytes; at += 64) {
    __asm__ volatile("prefetcht0 %0" : : "m"(row[at]));
  }
}

[[gnu::always_inline]] inline void GatherBatch(const BenchTable& table, const Batch& batch) {
  const std::size_t n = batch.ids.size();
  const std::uint32_t row_bytes = table.row_bytes();
  for (std::size_t i = 0; i < std::min(kAhead, n); ++i)
    Prefetch(table.row(batch.ids[i]), row_bytes);
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) Prefetch(table.row(batch.ids[i + kAhead]), row_bytes);
    const std::byte* from = table.row(batch.ids[i]);
    std::byte* to = batch.out + i * row_bytes;
    std::uint32_t at = 0;
    for (; at + 32 <= row_bytes; at += 32) std::memcpy(to + at, from + at, 32);
    for (; at + 8 <= row_bytes; at += 8) std::memcpy(to + at, from + at, 8);
    for (; at < row_bytes; ++at) to[at] = from[at];
  }
}

void GatherNarrow(const BenchTable& table, const Batch& batch) { GatherBatch(table, batch); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void GatherWide(const BenchTable& table, const Batch& batch) {
  GatherBatch(table, batch);
}
bool HasWide() { return __builtin_cpu_supports("avx2"); }
#else
void GatherWide(const BenchTable& table, const Batch& batch) { GatherBatch(table, batch); }
bool HasWide() { return false; }
#endif

class Gather final : public ReadPath {
 public:
  explicit Gather(const BenchTable& table)
      : table_(table), gather_(HasWide() ? GatherWide : GatherNarrow) {}
  const std::string& name() const override { return name_; }

  absl::Status Read(std::span<const Batch> batches) override {
    for (const Batch& batch : batches) gather_(table_, batch);
    return absl::OkStatus();
  }

 private:
  const BenchTable& table_;
  void (*const gather_)(const BenchTable&, const Batch&);
  const std::string name_ = "raw_gather";
};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchTable>> BenchTable::Create(std::uint64_t rows,
                                                               std::uint32_t row_bytes,
                                                               std::uint32_t stride,
                                                               std::uint64_t seed) {
  auto table = std::unique_ptr<BenchTable>(new BenchTable);
  table->rows_ = rows;
  table->row_bytes_ = row_bytes;
  table->stride_ = stride;
  table->seed_ = seed;
  table->bytes_ = (rows * stride + kHugePage - 1) / kHugePage * kHugePage;
  const int shared = MAP_SHARED | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, table->bytes_, PROT_READ | PROT_WRITE,
                      shared | MAP_HUGETLB | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    memory = mmap(nullptr, table->bytes_, PROT_READ | PROT_WRITE, shared | MAP_POPULATE, -1, 0);
  }
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot map ", table->bytes_ >> 20, " MiB for the bench table: ", std::strerror(errno)));
  }
  table->data_ = static_cast<std::byte*>(memory);
  for (std::uint64_t row = 0; row < rows; ++row) {
    FillSyntheticRow(seed, RowId(row), {table->data_ + row * stride, row_bytes});
  }
  return table;
}

BenchTable::~BenchTable() { munmap(data_, bytes_); }

std::unique_ptr<ReadPath> RawGather(const BenchTable& table) {
  return std::make_unique<Gather>(table);
}

}  // namespace engram::bench
