// The Engram memory pool's client library for C++20: RAII and spans over the C ABI (engram.h),
// header only. Failures throw engram::Error, which carries the C status; everything else is said in
// engram.h. Pool and Table: Thread-safe. Move-only; a table is closed before its pool.
#pragma once

#include <engram/engram.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engram {

class Error : public std::runtime_error {
 public:
  explicit Error(engram_status status)
      : std::runtime_error(std::string(engram_status_name(status)) + ": " + engram_last_error()),
        status_(status) {}
  engram_status status() const noexcept { return status_; }

 private:
  engram_status status_;
};

namespace detail {
inline void Check(engram_status status) {
  if (status != ENGRAM_OK) throw Error(status);
}
inline std::uint64_t Nanoseconds(std::chrono::nanoseconds time) {
  return time.count() <= 0 ? 1 : static_cast<std::uint64_t>(time.count());
}
inline const char* OrNull(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }
}  // namespace detail

// engram_metrics: Prometheus text of every open table of this process.
inline std::string Metrics() {
  std::string text;
  while (true) {
    std::size_t needed = 0;
    detail::Check(engram_metrics(nullptr, 0, &needed));
    text.resize(needed + needed / 4);
    const engram_status status = engram_metrics(text.data(), text.size(), &needed);
    if (status == ENGRAM_RESOURCE_EXHAUSTED) continue;  // a table was opened meanwhile
    detail::Check(status);
    text.resize(needed - 1);
    return text;
  }
}

// engram_table_options, for Pool::OpenTable and Table::Adopt.
struct OpenOptions {
  std::string expected_spec_digest;          // empty: any; in Adopt: that of the table
  std::string expected_content_digest;       // empty: any
  std::chrono::nanoseconds open_timeout{0};  // 0: the default

  engram_table_options given() const {
    engram_table_options options;
    engram_table_options_init(&options);
    options.expected_spec_digest = detail::OrNull(expected_spec_digest);
    options.expected_content_digest = detail::OrNull(expected_content_digest);
    options.open_timeout_ns = static_cast<std::uint64_t>(open_timeout.count());
    return options;
  }
};

// Raw token ids of one sequence and what stands before them, oldest first.
struct TokenInput {
  std::span<const std::int64_t> tokens;
  std::span<const std::uint8_t> dead = {};  // empty, or one flag a token
  std::span<const std::int64_t> lookback = {};
  std::span<const std::uint8_t> lookback_dead = {};  // empty, or one flag a look-back token
};

// engram_layout with its defaults: packed rows of every column, [token][column].
struct Layout {
  std::uint32_t max_tokens = 0;
  engram_row_order order = ENGRAM_TOKEN_COLUMN_ROW;
  bool split_planes = false;
  std::uint32_t first_column = 0;
  std::uint32_t columns = 0;      // 0: all from first_column on
  std::uint32_t column_step = 1;  // rank r of n: first_column r, column_step n

  engram_layout given() const {
    engram_layout layout{};
    layout.struct_size = sizeof layout;
    layout.max_tokens = max_tokens;
    layout.order = static_cast<std::uint32_t>(order);
    layout.split_planes = split_planes ? 1 : 0;
    layout.first_column = first_column;
    layout.columns = columns;
    layout.column_step = column_step;
    return layout;
  }
};

// Memory that is registered with a table; unregistered at the end. REQUIRES: outlived by the table
// and the memory, outlives the steps and slots that use it. Move-only.
class Destination {
 public:
  Destination(engram_table* table, std::span<std::byte> memory) : table_(table), memory_(memory) {
    detail::Check(engram_table_register_destination(table, memory.data(), memory.size(), &number_));
  }
  Destination(Destination&& other) noexcept
      : table_(other.table_), memory_(other.memory_), number_(std::exchange(other.number_, 0)) {}
  Destination& operator=(Destination&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(memory_, other.memory_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Destination() {
    if (number_ != 0) engram_table_unregister_destination(table_, number_);
  }
  engram_destination number() const noexcept { return number_; }
  std::span<std::byte> memory() const noexcept { return memory_; }

 private:
  engram_table* table_;
  std::span<std::byte> memory_;
  engram_destination number_ = 0;
};

class Table {
 public:
  static constexpr std::int32_t kWholeTable = -1;
  static constexpr std::chrono::seconds kTimeout{1};

  engram_table* handle() const noexcept { return table_.get(); }

  engram_table_info info() const {
    engram_table_info info{};
    info.struct_size = sizeof info;
    detail::Check(engram_table_get_info(table_.get(), &info));
    return info;
  }
  engram_layer_info layer(std::uint32_t index) const {
    engram_layer_info info{};
    info.struct_size = sizeof info;
    detail::Check(engram_table_get_layer(table_.get(), index, &info));
    return info;
  }
  engram_column_info column(std::uint32_t index) const {
    engram_column_info info{};
    info.struct_size = sizeof info;
    detail::Check(engram_table_get_column(table_.get(), index, &info));
    return info;
  }
  engram_plane_info plane(std::uint32_t index) const {
    engram_plane_info info{};
    info.struct_size = sizeof info;
    detail::Check(engram_table_get_plane(table_.get(), index, &info));
    return info;
  }
  engram_stats stats() const {
    engram_stats stats{};
    stats.struct_size = sizeof stats;
    detail::Check(engram_table_get_stats(table_.get(), &stats));
    return stats;
  }

  // Where the rows of a step land that has this layout (engram.h), plane by plane.
  engram_layout_info layout(const Layout& layout, std::uint32_t plane = 0) const {
    const engram_layout given = layout.given();
    engram_layout_info info{};
    info.struct_size = sizeof info;
    detail::Check(engram_table_get_layout(table_.get(), &given, plane, &info));
    return info;
  }
  Destination Register(std::span<std::byte> memory) { return Destination(table_.get(), memory); }

  // "name@version" that the alias names now, if the table was opened by one and it is another.
  std::optional<std::string> pending() const {
    char name[ENGRAM_NAME_BYTES];
    detail::Check(engram_table_pending(table_.get(), name, sizeof name));
    if (name[0] == '\0') return std::nullopt;
    return std::string(name);
  }
  // Readable for as long as something is pending; the table's own, to be polled only.
  int pending_fd() const {
    int fd = -1;
    detail::Check(engram_table_pending_fd(table_.get(), &fd));
    return fd;
  }
  // Opens what is pending; this table stays open until it is destroyed.
  Table Adopt(const OpenOptions& options = {}) const {
    const engram_table_options given = options.given();
    engram_table* adopted = nullptr;
    detail::Check(engram_table_adopt(table_.get(), &given, &adopted));
    return Table(adopted);
  }

  // [token][layer][column of the layer], rows of each layer's own table.
  std::vector<std::int64_t> Addresses(const TokenInput& input) const {
    const engram_table_info table = info();
    std::vector<std::int64_t> rows(input.tokens.size() * table.layers * table.columns_per_layer);
    const engram_tokens tokens = Tokens(input);
    detail::Check(engram_table_addresses(table_.get(), &tokens, rows.data(), rows.size()));
    return rows;
  }

  // Packed rows land in `out`. `row_status` is empty or takes one engram_row_status an id. A
  // negative id is skipped.
  void ReadRows(std::span<const std::int64_t> ids, std::span<std::byte> out,
                std::int32_t layer_index = kWholeTable, std::span<std::uint8_t> row_status = {},
                std::chrono::nanoseconds timeout = kTimeout) {
    Read(ids.data(), ids.size(), ENGRAM_ID_INT64, out, layer_index, row_status, timeout);
  }
  void ReadRows(std::span<const std::int32_t> ids, std::span<std::byte> out,
                std::int32_t layer_index = kWholeTable, std::span<std::uint8_t> row_status = {},
                std::chrono::nanoseconds timeout = kTimeout) {
    Read(ids.data(), ids.size(), ENGRAM_ID_INT32, out, layer_index, row_status, timeout);
  }
  // [token][layer][column of the layer] rows land in `out`.
  void ReadTokens(const TokenInput& input, std::span<std::byte> out,
                  std::span<std::uint8_t> row_status = {},
                  std::chrono::nanoseconds timeout = kTimeout) {
    const engram_table_info table = info();
    const std::size_t rows = input.tokens.size() * table.layers * table.columns_per_layer;
    CheckStatusPlaces(row_status, rows);
    const engram_tokens tokens = Tokens(input);
    detail::Check(engram_table_read_tokens(table_.get(), &tokens, out.data(), out.size(),
                                           row_status.empty() ? nullptr : row_status.data(),
                                           detail::Nanoseconds(timeout)));
  }

 private:
  friend class Pool;
  friend class Prefetcher;
  struct Close {
    void operator()(engram_table* table) const noexcept { engram_table_close(table); }
  };
  explicit Table(engram_table* table) : table_(table) {}

  static void CheckStatusPlaces(std::span<std::uint8_t> row_status, std::size_t rows) {
    if (!row_status.empty() && row_status.size() < rows)
      throw std::invalid_argument("row_status has " + std::to_string(row_status.size()) +
                                  " places for " + std::to_string(rows) + " rows");
  }
  static engram_tokens Tokens(const TokenInput& input) {
    if (!input.dead.empty() && input.dead.size() != input.tokens.size())
      throw std::invalid_argument("dead needs one flag a token");
    if (!input.lookback_dead.empty() && input.lookback_dead.size() != input.lookback.size())
      throw std::invalid_argument("lookback_dead needs one flag a look-back token");
    engram_tokens tokens{};
    tokens.struct_size = sizeof tokens;
    tokens.tokens = input.tokens.data();
    tokens.count = input.tokens.size();
    tokens.dead = input.dead.empty() ? nullptr : input.dead.data();
    tokens.lookback = input.lookback.data();
    tokens.lookback_count = input.lookback.size();
    tokens.lookback_dead = input.lookback_dead.empty() ? nullptr : input.lookback_dead.data();
    return tokens;
  }
  void Read(const void* ids, std::size_t count, engram_id_type type, std::span<std::byte> out,
            std::int32_t layer_index, std::span<std::uint8_t> row_status,
            std::chrono::nanoseconds timeout) {
    CheckStatusPlaces(row_status, count);
    engram_rows rows{};
    rows.struct_size = sizeof rows;
    rows.ids = ids;
    rows.count = count;
    rows.id_type = type;
    rows.layer_index = layer_index;
    detail::Check(engram_table_read_rows(table_.get(), &rows, out.data(), out.size(),
                                         row_status.empty() ? nullptr : row_status.data(),
                                         detail::Nanoseconds(timeout)));
  }

  std::unique_ptr<engram_table, Close> table_;
};

// The reads of a step's layers, started at once and waited for layer by layer (engram.h, "steps").
// Thread-safe. REQUIRES: destroyed before its table.
class Prefetcher {
 public:
  // Both default: 8 steps; callers that wait serve them.
  struct Options {
    std::uint32_t steps = 0;
    std::uint32_t max_step_rows = 0;
    bool poller = false;
    std::uint64_t cache_bytes = 0;  // of the row cache; 0: none
    std::string pinned_file;        // of DumpHot; empty: none
    bool host_cache = false;        // one cache of all processes of this host
    bool check_memory = false;      // to find mistakes
  };
  Prefetcher(const Table& table, const Options& options) {
    engram_prefetcher_options given;
    engram_prefetcher_options_init(&given);
    given.steps = options.steps;
    given.max_step_rows = options.max_step_rows;
    given.poller = options.poller ? 1 : 0;
    given.cache_bytes = options.cache_bytes;
    given.host_cache = options.host_cache ? 1 : 0;
    if (!options.pinned_file.empty()) given.pinned_file = options.pinned_file.c_str();
    given.check_memory = options.check_memory ? 1 : 0;
    engram_prefetcher* prefetcher = nullptr;
    detail::Check(engram_prefetcher_open(table.handle(), &given, &prefetcher));
    prefetcher_.reset(prefetcher);
  }

  // A slot (engram.h) at the front of `out`; `destination` is null or covers it.
  std::uint32_t AddSlot(const Layout& layout, std::span<std::byte> out,
                        const Destination* destination = nullptr) {
    const engram_layout given = layout.given();
    engram_slot_options options{};
    options.struct_size = sizeof options;
    options.layout = &given;
    options.out = out.data();
    options.out_bytes = out.size();
    options.destination = destination == nullptr ? 0 : destination->number();
    std::uint32_t slot = 0;
    detail::Check(engram_prefetcher_add_slot(prefetcher_.get(), &options, &slot));
    return slot;
  }
  // All layers of the table by token ids, into a slot; rows that are not there within `timeout`
  // have failed.
  engram_ticket Submit(std::uint32_t slot, const TokenInput& input,
                       engram_step_kind kind = ENGRAM_STEP_DECODE,
                       std::chrono::nanoseconds timeout = Table::kTimeout) {
    const engram_tokens tokens = Table::Tokens(input);
    engram_step step{};
    step.kind = static_cast<std::uint32_t>(kind);
    step.tokens = &tokens;
    step.slot = slot;
    step.timeout_ns = detail::Nanoseconds(timeout);
    return Submit(step);
  }
  // `step` as in engram.h; its struct_size is set here.
  engram_ticket Submit(engram_step step) {
    step.struct_size = sizeof step;
    engram_ticket ticket = 0;
    detail::Check(engram_prefetcher_submit(prefetcher_.get(), &step, &ticket));
    return ticket;
  }
  // `layer` -1: every layer.
  void Wait(engram_ticket ticket, std::int32_t layer, std::chrono::nanoseconds timeout) {
    detail::Check(
        engram_prefetcher_wait(prefetcher_.get(), ticket, layer, detail::Nanoseconds(timeout)));
  }
  engram_layer_state State(engram_ticket ticket, std::uint32_t layer) {
    engram_layer_state state = ENGRAM_LAYER_UNKNOWN;
    detail::Check(engram_prefetcher_poll(prefetcher_.get(), ticket, layer, &state, nullptr));
    return state;
  }
  // Whether the layer missed its needed_in_ns.
  bool Late(engram_ticket ticket, std::uint32_t layer) {
    int late = 0;
    detail::Check(engram_prefetcher_poll(prefetcher_.get(), ticket, layer, nullptr, &late));
    return late != 0;
  }
  // One engram_row_status a row of a layer that is not pending, [token][column].
  std::vector<std::uint8_t> RowStatus(engram_ticket ticket, std::uint32_t layer) {
    std::size_t rows = 0;
    std::vector<std::uint8_t> status;
    engram_prefetcher_row_status(prefetcher_.get(), ticket, layer, nullptr, 0, &rows);
    status.resize(rows);
    detail::Check(engram_prefetcher_row_status(prefetcher_.get(), ticket, layer, status.data(),
                                               rows, nullptr));
    return status;
  }
  void Cancel(engram_ticket ticket, std::int32_t layer) {
    detail::Check(engram_prefetcher_cancel(prefetcher_.get(), ticket, layer));
  }
  void Release(engram_ticket ticket) {
    detail::Check(engram_prefetcher_release(prefetcher_.get(), ticket));
  }
  // Rows that a later step may want are put into the cache; returns how many were taken.
  std::uint64_t Hint(engram_rows rows) {
    rows.struct_size = sizeof rows;
    std::uint64_t taken = 0;
    detail::Check(engram_prefetcher_hint(prefetcher_.get(), &rows, &taken));
    return taken;
  }
  std::uint64_t Hint(engram_tokens tokens) {
    tokens.struct_size = sizeof tokens;
    std::uint64_t taken = 0;
    detail::Check(engram_prefetcher_hint_tokens(prefetcher_.get(), &tokens, &taken));
    return taken;
  }
  void DumpHot(const std::string& file, std::uint64_t max_ngrams = 0) {
    detail::Check(engram_dump_hot(prefetcher_.get(), file.c_str(), max_ngrams));
  }
  engram_prefetcher* handle() const noexcept { return prefetcher_.get(); }

 private:
  struct Close {
    void operator()(engram_prefetcher* prefetcher) const noexcept {
      engram_prefetcher_close(prefetcher);
    }
  };
  std::unique_ptr<engram_prefetcher, Close> prefetcher_;
};

class Pool {
 public:
  struct Options {
    std::string endpoints;    // "host:port[,host:port]"; empty: $ENGRAM_ENDPOINT, then the context
    std::string client_name;  // empty: program name and pid
    std::string tenant;       // empty: "default"
    std::string fabric;       // empty: any
    std::chrono::nanoseconds connect_timeout{0};  // 0: the default
    // Data-plane waits spin so long, then block; 0: the default, max(): they never block.
    std::chrono::nanoseconds spin{0};
    // PEM files; all empty: $ENGRAM_TLS_CERT, $ENGRAM_TLS_KEY and $ENGRAM_TLS_CA, else no TLS.
    std::string tls_cert, tls_key, tls_ca;
  };
  using TableOptions = OpenOptions;

  static Pool Open(const Options& options) {
    engram_pool_options given;
    engram_pool_options_init(&given);
    given.endpoints = detail::OrNull(options.endpoints);
    given.client_name = detail::OrNull(options.client_name);
    given.tenant = detail::OrNull(options.tenant);
    given.fabric = detail::OrNull(options.fabric);
    given.connect_timeout_ns = static_cast<std::uint64_t>(options.connect_timeout.count());
    given.spin_ns = options.spin == std::chrono::nanoseconds::max()
                        ? UINT64_MAX
                        : static_cast<std::uint64_t>(options.spin.count());
    const engram_tls_files tls{sizeof tls, detail::OrNull(options.tls_cert),
                               detail::OrNull(options.tls_key), detail::OrNull(options.tls_ca)};
    engram_pool* pool = nullptr;
    detail::Check(engram_pool_open_tls(&given, &tls, &pool));
    return Pool(pool);
  }
  static Pool Open() { return Open(Options{}); }

  Table OpenTable(const std::string& name, const TableOptions& options) {
    const engram_table_options given = options.given();
    engram_table* table = nullptr;
    detail::Check(engram_table_open(pool_.get(), name.c_str(), &given, &table));
    return Table(table);
  }
  Table OpenTable(const std::string& name) { return OpenTable(name, TableOptions{}); }

  engram_pool* handle() const noexcept { return pool_.get(); }

 private:
  struct Close {
    void operator()(engram_pool* pool) const noexcept { engram_pool_close(pool); }
  };
  explicit Pool(engram_pool* pool) : pool_(pool) {}

  std::unique_ptr<engram_pool, Close> pool_;
};

}  // namespace engram
