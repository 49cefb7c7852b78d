// What the C ABI's functions are given, checked and turned into the library's own types: null
// pointers, structs of other sizes, short buffers, huge counts, ids outside the table. Every
// mistake of the caller ends here as InvalidArgument that names argument, value and limit; nothing
// behind this layer sees one. Knows no pool and no gRPC. Pure functions: Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/include/engram/engram.h"
#include "client/row_reader.h"
#include "client/rpc/pool.h"
#include "engram/addressing.h"

namespace engram::client::abi {

// A caller's struct may be older (shorter) or newer (longer) than ours, never absurd.
inline constexpr std::size_t kMaxStructBytes = 1024;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxRows = std::size_t{1} << 31;
// A year: longer times would overflow the clock.
inline constexpr std::uint64_t kMaxTimeoutNs = 365ull * 24 * 3600 * 1'000'000'000;
inline constexpr std::size_t kMaxTokens = std::size_t{1} << 26;

absl::Status CheckStructSize(const char* what, std::size_t struct_size);

// *ours = the caller's struct; fields that the caller's version lacks keep their values.
// `given` may be null where `optional`. A longer struct must hold zeros beyond what we know.
template <class Struct>
absl::Status TakeStruct(const char* what, const Struct* given, bool optional, Struct* ours) {
  if (given == nullptr) {
    if (optional) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  }
  const std::size_t bytes = given->struct_size;
  if (absl::Status status = CheckStructSize(what, bytes); !status.ok()) return status;
  for (std::size_t i = sizeof(Struct); i < bytes; ++i) {
    if (reinterpret_cast<const char*>(given)[i] != 0)
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of ", bytes, " bytes sets a field that this library (",
                       sizeof(Struct), " bytes) does not know: use a newer library"));
  }
  std::memcpy(static_cast<void*>(ours), given, bytes < sizeof(Struct) ? bytes : sizeof(Struct));
  return absl::OkStatus();
}

// The caller's struct = ours, as far as both reach. `given` carries its struct_size.
template <class Struct>
absl::Status GiveStruct(const char* what, const Struct& ours, Struct* given) {
  if (given == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  const std::size_t bytes = given->struct_size;
  if (absl::Status status = CheckStructSize(what, bytes); !status.ok()) return status;
  std::memcpy(static_cast<void*>(given), &ours, bytes < sizeof(Struct) ? bytes : sizeof(Struct));
  given->struct_size = bytes;
  return absl::OkStatus();
}

// `environment`, `context_file`: where endpoints come from when the options name none.
absl::StatusOr<PoolOptions> TakePoolOptions(const engram_pool_options* given,
                                            const char* environment,
                                            const std::string& context_file);
// $ENGRAM_CONTEXT, else ~/.config/engram/context.yaml.
std::string ContextFile();

absl::Status TakeTlsFiles(const engram_tls_files* given, PoolOptions* options);
absl::StatusOr<OpenTableOptions> TakeTableOptions(const engram_table_options* given);
absl::StatusOr<std::string> TakeName(const char* what, const char* given);

// What the checks of reads need to know of a table.
struct TableShape {
  struct Layer {
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;
  };
  std::string name;
  std::uint64_t rows = 0;
  std::uint32_t row_bytes = 0;
  std::uint32_t columns = 0;  // of all layers
  std::vector<Layer> layers;
  std::vector<std::uint32_t> planes;  // bytes of each

  std::uint32_t columns_per_layer() const {
    return layers.empty() ? columns : columns / static_cast<std::uint32_t>(layers.size());
  }
};

// The part that reads `rows` packed into `out`; its row_status is `row_status` reinterpreted, to be
// turned by GiveRowStatus afterwards. InvalidArgument names the first row that does not exist.
absl::StatusOr<ReadPart> TakeRows(const TableShape& shape, const engram_rows* rows, void* out,
                                  std::size_t out_bytes, std::uint8_t* row_status);
// row_status[i] = what part.row_status[i] means to the caller; skipped rows are told by their ids.
// Both may be the same memory.
void GiveRowStatus(const ReadPart& part, std::uint8_t* row_status);
engram_row_status RowStatus(ReadStatus status);

// The tokens, at most `most`, and how many rows of all columns they have.
struct Tokens {
  TokenSpan span;
  std::size_t rows = 0;  // count * columns
};
absl::StatusOr<Tokens> TakeTokens(const TableShape& shape, const engram_tokens* tokens,
                                  std::size_t most);
// Also checks that `places` of `place_bytes` each are enough for [count][columns].
absl::StatusOr<Tokens> TakeTokens(const TableShape& shape, const engram_tokens* tokens,
                                  const void* out, std::size_t places, std::size_t place_bytes);

absl::StatusOr<Table::PrefetcherOptions> TakePrefetcherOptions(
    const engram_prefetcher_options* given, bool* check_memory);
absl::StatusOr<StepKind> TakeKind(std::uint32_t kind);
// 0: never.
Instant NeededBy(Instant now, std::uint64_t needed_in_ns);

struct StepLayout;  // client/abi/layout.h
// Where a step lands: a layout from `out` on, or, without one, where its layer_rows say.
struct StepPlace {
  const StepLayout* layout = nullptr;
  std::byte* out = nullptr;
};
// That there is an output and that it is large enough. REQUIRES: place.layout.
absl::Status CheckPlace(const StepPlace& place, std::size_t out_bytes);
// The output of `part` = block `block` of the layout.
void PlacePart(const StepPlace& place, std::uint32_t block, ReadPart* part);
// layer_rows[at] of a step that is submitted at `now`. InvalidArgument names the first row that
// does not exist, unless rows like that are to fail one by one.
absl::StatusOr<StepLayer> TakeLayer(const TableShape& shape, const engram_layer_rows* layer_rows,
                                    std::uint32_t at, Instant now, const StepPlace& place,
                                    bool fail_bad_ids = false);

engram_status StatusOf(const absl::Status& status);

}  // namespace engram::client::abi
