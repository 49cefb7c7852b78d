#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/driver/paths.h"
#include "engram/synthetic.h"

namespace engram::bench {
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
constexpr std::size_t kAhead = 8;
constexpr std::uint32_t kRawRowBytes = 264;

// One register where there are such registers; the compiler would split a memcpy of 32 bytes.
typedef long long Word32 __attribute__((vector_size(32), aligned(1), may_alias));

[[gnu::always_inline]] inline void Move32(std::byte* to, const std::byte* from) {
  *reinterpret_cast<Word32*>(to) = *reinterpret_cast<const Word32*>(from);
}

// Every line of the row, the one that its last byte reaches into included.
[[gnu::always_inline]] inline void Prefetch(const std::byte* row, std::uint32_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(row);
  for (std::uintptr_t line = start & ~std::uintptr_t{63}; line < start + bytes; line += 64) {
    __asm__ volatile("prefetcht0 (%0)" : : "r"(line));
  }
}

// The shape that FABRIC 1e found fastest: load/store pairs of 32 bytes, eight in a row.
[[gnu::always_inline]] inline void Copy(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (; bytes >= 256; bytes -= 256, to += 256, from += 256) {
    Move32(to, from);
    Move32(to + 32, from + 32);
    Move32(to + 64, from + 64);
    Move32(to + 96, from + 96);
    Move32(to + 128, from + 128);
    Move32(to + 160, from + 160);
    Move32(to + 192, from + 192);
    Move32(to + 224, from + 224);
  }
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) std::memcpy(to, from, 8);
  for (; bytes > 0; --bytes) *to++ = *from++;
}

// The bench's rows are those of DeepSeek-V4.1; the compiler knows the width.
[[gnu::always_inline]] inline void GatherBatch(const BenchTable& table, const Batch& batch) {
  const std::size_t n = batch.ids.size();
  for (std::size_t i = 0; i < std::min(kAhead, n); ++i)
    Prefetch(table.row(batch.ids[i]), kRawRowBytes);
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) Prefetch(table.row(batch.ids[i + kAhead]), kRawRowBytes);
    Copy(batch.out + i * kRawRowBytes, table.row(batch.ids[i]), kRawRowBytes);
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
  if (row_bytes != kRawRowBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the floors gather rows of ", kRawRowBytes, " bytes, not ", row_bytes));
  }
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
    std::fprintf(stderr,
                 "warning: no %llu huge pages for the bench table: the floors run on 4 KiB pages "
                 "and are too low\n",
                 static_cast<unsigned long long>(table->bytes_ / kHugePage));
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
