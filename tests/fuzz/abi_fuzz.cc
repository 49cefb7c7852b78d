// The C ABI's argument checks: structs of any size and content, counts of any size, short buffers.
// Pointers are null or point at what they say; nothing else can be checked.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/abi/arguments.h"
#include "client/abi/layout.h"

namespace {

namespace abi = engram::client::abi;  // not the C++ runtime's

// Takes values off the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : data_(data), left_(bytes) {}
  template <class T>
  T Take() {
    T value{};
    Bytes(&value, sizeof value);
    return value;
  }
  void Bytes(void* to, std::size_t bytes) {
    const std::size_t count = std::min(bytes, left_);
    if (count == 0) return;  // an empty input has no address
    std::memcpy(to, data_, count);
    data_ += count;
    left_ -= count;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// A caller's struct with `struct_size` bytes behind it, so that reading past what it says is seen.
template <class Struct>
class Given {
 public:
  explicit Given(Input& input) {
    const auto claimed = input.Take<std::uint64_t>();
    const std::size_t size = claimed % 4 == 0 ? claimed : claimed / 4 % 200;
    memory_.resize(std::max<std::size_t>(sizeof(std::size_t), std::min<std::size_t>(size, 1024)));
    input.Bytes(memory_.data(), memory_.size());
    std::memcpy(memory_.data(), &size, sizeof size);
  }
  // Sets a field if the caller's struct has it.
  template <class Field>
  void Set(std::size_t offset, Field value) {
    if (offset + sizeof value <= memory_.size())
      std::memcpy(memory_.data() + offset, &value, sizeof value);
  }
  Struct* get() { return reinterpret_cast<Struct*>(memory_.data()); }

 private:
  std::vector<std::uint8_t> memory_;
};

void Require(bool holds) {
  if (!holds) std::abort();
}

abi::TableShape Shape(Input& input) {
  abi::TableShape shape;
  shape.name = "t@1";
  shape.row_bytes = 1 + input.Take<std::uint8_t>();
  const std::uint64_t layers = 1 + input.Take<std::uint8_t>() % 4;
  shape.columns = static_cast<std::uint32_t>(layers * 3);
  for (std::uint64_t i = 0; i < layers; ++i) {
    shape.layers.push_back(
        {shape.rows, 1 + input.Take<std::uint64_t>() % (std::uint64_t{1} << 33)});
    shape.rows += shape.layers.back().rows;
  }
  const std::uint32_t values = shape.row_bytes - shape.row_bytes / 3;
  shape.planes = {values, shape.row_bytes - values};
  return shape;
}

void Rows(Input& input) {
  const abi::TableShape shape = Shape(input);
  const bool wide = input.Take<std::uint8_t>() % 2 != 0;
  const std::size_t count = input.Take<std::uint8_t>();
  // Eight bytes each, so that either id_type may be set or left out.
  std::vector<std::uint8_t> ids(count * 8);
  input.Bytes(ids.data(), ids.size());
  std::vector<std::byte> out(input.Take<std::uint16_t>());
  std::vector<std::uint8_t> status(count);
  Given<engram_rows> rows(input);
  rows.Set<const void*>(offsetof(engram_rows, ids),
                        input.Take<std::uint8_t>() % 8 == 0 ? nullptr : ids.data());
  const auto huge = input.Take<std::uint64_t>();
  rows.Set<std::size_t>(offsetof(engram_rows, count),
                        huge % 8 == 0 ? huge | (std::uint64_t{1} << 40) : count);
  if (huge % 8 != 1) rows.Set<std::uint32_t>(offsetof(engram_rows, id_type), wide ? 1 : 0);
  auto part = abi::TakeRows(shape, rows.get(), out.data(), out.size(), status.data());
  if (!part.ok()) {
    Require(abi::StatusOf(part.status()) == ENGRAM_INVALID_ARGUMENT);
    return;
  }
  Require(std::uint64_t{part->run_rows} * shape.row_bytes <= out.size());
  Require(part->first_row + part->row_limit <= shape.rows);
  abi::GiveRowStatus(*part, status.data());
}

void Tokens(Input& input) {
  const abi::TableShape shape = Shape(input);
  std::vector<std::int64_t> ids(input.Take<std::uint8_t>());
  std::vector<std::byte> out(input.Take<std::uint16_t>());
  Given<engram_tokens> tokens(input);
  tokens.Set(offsetof(engram_tokens, tokens), ids.data());
  const auto huge = input.Take<std::uint64_t>();
  tokens.Set<std::size_t>(offsetof(engram_tokens, count), huge % 4 == 0 ? huge : ids.size());
  tokens.Set<const void*>(offsetof(engram_tokens, dead), nullptr);
  tokens.Set<const void*>(offsetof(engram_tokens, lookback), nullptr);
  tokens.Set<const void*>(offsetof(engram_tokens, lookback_dead), nullptr);
  const auto taken = abi::TakeTokens(shape, tokens.get(), out.data(), out.size(), shape.row_bytes);
  if (!taken.ok()) return;
  Require(taken->rows == taken->span.tokens.size() * shape.columns);
  Require(taken->rows * shape.row_bytes <= out.size());
}

void Options(Input& input) {
  std::string text(input.Take<std::uint8_t>(), '\0');
  input.Bytes(text.data(), text.size());
  Given<engram_pool_options> pool(input);
  for (const std::size_t field :
       {offsetof(engram_pool_options, endpoints), offsetof(engram_pool_options, client_name),
        offsetof(engram_pool_options, tenant), offsetof(engram_pool_options, fabric)})
    pool.Set(field, input.Take<std::uint8_t>() % 2 != 0 ? text.c_str() : nullptr);
  (void)abi::TakePoolOptions(pool.get(), text.c_str(), "/nonexistent");
  Given<engram_table_options> table(input);
  table.Set(offsetof(engram_table_options, expected_spec_digest), text.c_str());
  table.Set<const char*>(offsetof(engram_table_options, expected_content_digest), nullptr);
  (void)abi::TakeTableOptions(table.get());
  Given<engram_layer_info> info(input);
  (void)abi::GiveStruct("info", engram_layer_info{}, info.get());
}

// No row of the part leaves [out, out + bytes).
void RequireInside(const engram::client::ReadPart& part, std::uint32_t row_bytes,
                   const std::byte* out, std::size_t bytes) {
  for (std::uint32_t run = 0; run < part.runs; ++run) {
    for (std::uint32_t i = 0; i < part.run_rows; ++i) {
      const std::uint32_t first = part.split_bytes == 0 ? row_bytes : part.split_bytes;
      const std::byte* const at = part.out + run * part.run_stride + i * part.row_stride;
      Require(at >= out && at + first <= out + bytes);
      if (part.split_bytes == 0) continue;
      const std::byte* const rest =
          part.rest + run * part.rest_run_stride + i * part.rest_row_stride;
      Require(rest >= out && rest + (row_bytes - first) <= out + bytes);
    }
  }
}

// A layout of any columns, and a layer that lands by it or by its own strides.
void Layers(Input& input) {
  const abi::TableShape shape = Shape(input);
  Given<engram_layout> given(input);
  if (const auto few = input.Take<std::uint8_t>(); few % 8 != 0) {
    given.Set<std::uint32_t>(offsetof(engram_layout, max_tokens), few % 32);
    given.Set<std::uint32_t>(offsetof(engram_layout, order), few / 32 % 2);
  }
  const auto layout = abi::TakeLayout(shape, given.get());
  std::vector<std::byte> out;
  abi::StepPlace place;
  const bool by_layout = input.Take<std::uint8_t>() % 2 != 0;
  if (by_layout) {
    if (!layout.ok() || layout->bytes > (std::size_t{1} << 24)) return;
    out.resize(layout->bytes);
    place = {&*layout, out.data()};
  } else {
    out.resize(input.Take<std::uint16_t>());
  }
  std::vector<std::int64_t> ids(16 * 32 + 8 * 8);
  input.Bytes(ids.data(), 256);
  Given<engram_layer_rows> rows(input);
  const auto odd = input.Take<std::uint64_t>();
  const std::uint64_t huge = odd % 16 == 0 ? std::uint64_t{1} << 40 : 0;
  rows.Set<const void*>(offsetof(engram_layer_rows, ids), ids.data());
  rows.Set<std::size_t>(offsetof(engram_layer_rows, runs), odd / 16 % 16 + huge);
  rows.Set<std::size_t>(offsetof(engram_layer_rows, id_stride), odd / 256 % 32);
  rows.Set<std::uint32_t>(offsetof(engram_layer_rows, columns), odd / 8192 % 4);
  rows.Set<std::size_t>(offsetof(engram_layer_rows, column_id_stride), odd / 65536 % 8);
  if (odd % 16 != 1) {
    rows.Set<void*>(offsetof(engram_layer_rows, out), by_layout ? nullptr : out.data());
    rows.Set<std::size_t>(offsetof(engram_layer_rows, out_bytes), by_layout ? 0 : out.size());
  } else {
    rows.Set<void*>(offsetof(engram_layer_rows, out), nullptr);
  }
  const auto layer = abi::TakeLayer(shape, rows.get(), 0, engram::Instant{}, place);
  if (!layer.ok()) {
    Require(abi::StatusOf(layer.status()) == ENGRAM_INVALID_ARGUMENT);
    return;
  }
  RequireInside(layer->rows, shape.row_bytes, out.data(), out.size());
  Require(layer->rows.first_row + layer->rows.row_limit <= shape.rows);
  std::array<char, 9> file{};  // ends in a zero byte
  input.Bytes(file.data(), file.size() - 1);
  Given<engram_prefetcher_options> options(input);
  options.Set<const char*>(offsetof(engram_prefetcher_options, pinned_file),
                           odd % 3 == 0 ? nullptr : file.data());
  bool check = false;
  (void)abi::TakePrefetcherOptions(options.get(), &check);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  Input input(data, bytes);
  switch (input.Take<std::uint8_t>() % 4) {
    case 0: Rows(input); break;
    case 1: Tokens(input); break;
    case 2: Layers(input); break;
    default: Options(input);
  }
  return 0;
}
