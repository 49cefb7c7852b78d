// The C ABI of a prefetcher's row cache: hints and what is hot.
#include "client/abi/handles.h"
#include "client/shared_prefetcher.h"

namespace args = engram::client::abi;
using engram::client::SharedPrefetcher;

namespace {

constexpr std::size_t kHotNgrams = 100'000;

// A place that is never written: hints have no output, but are checked as reads are.
void* NoPlace() {
  static std::byte place;
  return &place;
}

absl::Status Hint(SharedPrefetcher& steps, const engram_table& table, const engram_rows* rows,
                  std::uint64_t* taken) {
  auto part = args::TakeRows(table.shape, rows, NoPlace(), SIZE_MAX, nullptr);
  if (!part.ok()) return part.status();
  *taken = steps.Hint(*part);
  return absl::OkStatus();
}

absl::Status HintTokens(SharedPrefetcher& steps, const engram_table& table,
                        const engram_tokens* tokens, std::uint64_t* taken) {
  auto ours = args::TakeTokens(table.shape, tokens, NoPlace(), SIZE_MAX, 1);
  if (!ours.ok()) return ours.status();
  return steps.Hint(ours->span, taken);
}

absl::Status DumpHot(SharedPrefetcher& steps, const engram_table& table, const char* file,
                     std::uint64_t max_ngrams) {
  auto path = args::TakeName("file", file);
  if (!path.ok()) return path.status();
  return table.table->WriteHot(steps, *path, max_ngrams == 0 ? kHotNgrams : max_ngrams);
}

}  // namespace

engram_status engram_prefetcher_hint(engram_prefetcher* prefetcher, const engram_rows* rows,
                                     uint64_t* taken) {
  std::uint64_t unseen = 0;
  if (taken == nullptr) taken = &unseen;
  *taken = 0;
  return args::CallSteps(prefetcher, [&](SharedPrefetcher& steps, engram_table& table) {
    return Hint(steps, table, rows, taken);
  });
}

engram_status engram_prefetcher_hint_tokens(engram_prefetcher* prefetcher,
                                            const engram_tokens* tokens, uint64_t* taken) {
  std::uint64_t unseen = 0;
  if (taken == nullptr) taken = &unseen;
  *taken = 0;
  return args::CallSteps(prefetcher, [&](SharedPrefetcher& steps, engram_table& table) {
    return HintTokens(steps, table, tokens, taken);
  });
}

engram_status engram_dump_hot(engram_prefetcher* prefetcher, const char* file,
                              uint64_t max_ngrams) {
  return args::CallSteps(prefetcher, [&](SharedPrefetcher& steps, engram_table& table) {
    return DumpHot(steps, table, file, max_ngrams);
  });
}
