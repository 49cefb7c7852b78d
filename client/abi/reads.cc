// The C ABI of addresses and of reads that block.
#include <span>
#include <vector>

#include "client/abi/handles.h"

using engram::client::ReadPart;
namespace args = engram::client::abi;

namespace {

// Memory of reads that the caller gave no place for; grows to what a thread needs and stays.
thread_local std::vector<engram::ReadStatus> status_scratch;
thread_local std::vector<engram::RowId> id_scratch;

absl::Status ReadRows(engram_table* table, const engram_rows* rows, void* out,
                      std::size_t out_bytes, std::uint8_t* row_status, std::uint64_t timeout_ns) {
  const engram::Instant deadline = args::DeadlineOf(timeout_ns);
  auto part = args::TakeRows(table->shape, rows, out, out_bytes, row_status);
  if (!part.ok()) return part.status();
  if (row_status == nullptr) {
    if (status_scratch.size() < part->run_rows) status_scratch.resize(part->run_rows);
    part->row_status = status_scratch.data();
  }
  absl::Status status = table->table->ReadParts({&*part, 1}, deadline);
  if (row_status != nullptr) args::GiveRowStatus(*part, row_status);
  return status;
}

absl::Status AddressesOf(const engram_table* table, const engram::TokenSpan& tokens,
                         std::size_t rows) {
  const engram::Addressing* addressing = table->table->addressing();
  if (addressing == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", table->shape.name, " names no address function: read it by row ids"));
  if (id_scratch.size() < rows) id_scratch.resize(rows);
  return addressing->Rows(tokens, std::span(id_scratch).first(rows));
}

absl::Status Addresses(const engram_table* table, const engram_tokens* tokens, std::int64_t* rows,
                       std::size_t capacity) {
  const args::TableShape& shape = table->shape;
  auto taken = args::TakeTokens(shape, tokens, rows, capacity, 1);
  if (!taken.ok()) return taken.status();
  if (absl::Status status = AddressesOf(table, taken->span, taken->rows); !status.ok())
    return status;
  const std::size_t per_layer = shape.columns / shape.layers.size();
  for (std::size_t i = 0; i < taken->rows; ++i) {
    const std::uint64_t first = shape.layers[i % shape.columns / per_layer].first_row;
    rows[i] = static_cast<std::int64_t>(id_scratch[i].value() - first);
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(engram_table* table, const engram_tokens* tokens, void* out,
                        std::size_t out_bytes, std::uint8_t* row_status, std::uint64_t timeout_ns) {
  const engram::Instant deadline = args::DeadlineOf(timeout_ns);
  const args::TableShape& shape = table->shape;
  auto taken = args::TakeTokens(shape, tokens, out, out_bytes, shape.row_bytes);
  if (!taken.ok()) return taken.status();
  if (absl::Status status = AddressesOf(table, taken->span, taken->rows); !status.ok())
    return status;
  ReadPart part;
  part.ids = id_scratch.data();
  part.run_rows = static_cast<std::uint32_t>(taken->rows);
  part.row_limit = shape.rows;
  part.out = static_cast<std::byte*>(out);
  part.row_stride = shape.row_bytes;
  if (row_status == nullptr && status_scratch.size() < taken->rows)
    status_scratch.resize(taken->rows);
  part.row_status = row_status == nullptr ? status_scratch.data()
                                          : reinterpret_cast<engram::ReadStatus*>(row_status);
  absl::Status status = table->table->ReadParts({&part, 1}, deadline);
  if (row_status != nullptr) args::GiveRowStatus(part, row_status);
  return status;
}

}  // namespace

extern "C" {

engram_status engram_table_addresses(const engram_table* table, const engram_tokens* tokens,
                                     int64_t* rows, size_t capacity) {
  return args::Call(table, [&] { return Addresses(table, tokens, rows, capacity); });
}

engram_status engram_table_read_rows(engram_table* table, const engram_rows* rows, void* out,
                                     size_t out_bytes, uint8_t* row_status, uint64_t timeout_ns) {
  return args::Call(table,
                    [&] { return ReadRows(table, rows, out, out_bytes, row_status, timeout_ns); });
}

engram_status engram_table_read_tokens(engram_table* table, const engram_tokens* tokens, void* out,
                                       size_t out_bytes, uint8_t* row_status, uint64_t timeout_ns) {
  return args::Call(
      table, [&] { return ReadTokens(table, tokens, out, out_bytes, row_status, timeout_ns); });
}

}  // extern "C"
