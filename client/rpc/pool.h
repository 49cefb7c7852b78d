// A connection to a pool, and its open tables: what engramctl, the C ABI, Python and the bench use.
//
//   auto pool = Pool::Open({.endpoints = {"127.0.0.1:7700"}});
//   auto table = (*pool)->OpenTable("deepseek-v4.1@1", {});
//   (*table)->ReadRows({.ids = ids, .out = out}, deadline);
//
// A pool follows the controller's map and keeps one read session with each node that serves an open
// table; it goes on reading while the controller is away, and opens its session anew with a node
// that restarted. Everything runs on one duty thread of its own plus gRPC's; nothing runs before
// Open. Pool and Table: Thread-safe. Close order: readers, tables, pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/read_counters.h"
#include "client/routes.h"
#include "client/row_reader.h"
#include "client/shared_prefetcher.h"
#include "engram/addressing.h"
#include "engram/shard_layout.h"
#include "engram/shard_map.h"
#include "engram/table_spec.h"
#include "fabric/fabric.h"

namespace engram::client {

struct PoolOptions {
  std::vector<std::string> endpoints;  // host:port of the controllers; the first that answers
  std::string client_name;             // shown to operators; empty: program name and pid
  std::string tenant = "default";      // with TLS: what the certificate says
  // PEM files (docs/security.md); none of them: no TLS. Read again when they change.
  std::string tls_cert, tls_key, tls_ca;
  std::optional<FabricKind> fabric;  // read only over this one
  Duration connect_timeout = std::chrono::seconds(5);
  // How long one fabric of one node may take to connect; the pool's thread waits for it.
  Duration reach_timeout = std::chrono::seconds(1);
  fabric::WaitMode wait;
  // The libfabric provider, where ofi is forced. Otherwise ofi is used only on a host with an RDMA
  // device, with the provider of those: emulated one-sided reads are slower than the stream. Then
  // the address of its interface, an RDMA device ("mlx5_0", "mlx5_0:2"), or "auto".
  std::string ofi_provider = "tcp;ofi_rxm";
  std::string ofi_bind = "auto";
  // As UCX_TLS and UCX_NET_DEVICES. ucx is used where it is forced, or transports are named. Empty
  // transports: UCX chooses.
  std::string ucx_transports;
  std::string ucx_devices = "lo";
  // DAX devices of this host on which replicas of nodes may lie that are read without any network:
  // "auto" for all, none, or some with commas ("/dev/dax0.0", "file:PATH" for a file in the place
  // of one). Which of them a node means is told by their superblocks.
  std::string dax_devices = "auto";
  // Gets what people should know of nodes that are lost and found; 0 error, 1 warning, 2 info.
  // Called on the pool's thread; must not call back into the pool. Empty: nothing is said.
  std::function<void(int level, const std::string& message)> log;
};

// Takes the five above from ENGRAM_OFI_PROVIDER, ENGRAM_OFI_HOST, ENGRAM_UCX_TLS,
// ENGRAM_UCX_DEVICES and ENGRAM_DAX_DEVICES, as far as they are set.
void TakeFabricEnvironment(PoolOptions* options);

// Takes those of the three TLS files that are not set from ENGRAM_TLS_CERT, ENGRAM_TLS_KEY and
// ENGRAM_TLS_CA.
void TakeTlsEnvironment(PoolOptions* options);

struct OpenTableOptions {
  std::string expected_spec_digest;     // empty: any
  std::string expected_content_digest;  // empty: any
  // Until every shard has a route.
  Duration open_timeout = std::chrono::seconds(10);
};

// One node as this client reaches it, for people.
struct ReachedNode {
  NodeId node;
  Incarnation incarnation;
  std::string endpoint;
  bool open = false;                     // a read session is open and granted
  bool cut = false;                      // its stream broke, reads go on until its lease ends
  absl::Status last_error;               // why the last session ended or could not be opened
  std::vector<FabricKind> fabrics;       // by which its rows can be read
  std::vector<std::string> unreachable;  // "mapped: not on this host", ...
};

// One way to a row, best first, for people.
struct RowRoute {
  NodeId node;
  FabricKind fabric;
  PathClass path_class;
};

// What a tenant may read (0: no limit), and what all its clients together do.
struct TenantRate {
  std::uint64_t budget_rows_per_second = 0;
  std::uint64_t rows_per_second = 0;
};

class PoolCore;

class Table {
 public:
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableRecord& record() const;
  // Opened by NAME@ALIAS: what the alias names now, when that is another version; the pool's newest
  // map says so. Nothing switches by itself: the caller opens the alias anew between two steps and
  // closes this table when its last step is done.
  std::optional<TableName> Pending() const;
  // Readable for as long as something is pending; the table's own, to be polled only.
  absl::StatusOr<int> PendingDescriptor() const;
  // As it was opened: NAME@VERSION or NAME@ALIAS.
  const TableName& asked() const;
  const TableSpec& spec() const { return record().spec; }
  const ShardLayout& layout() const;
  // Null when the table names no address function.
  const Addressing* addressing() const;
  const TokenMap& token_map() const;

  struct RowsRequest {
    std::span<const RowId> ids;    // whole-table ids
    std::span<std::byte> out;      // ids.size() packed rows
    std::span<ReadStatus> status;  // empty, or one per id
  };
  // Reads packed rows; blocks until `deadline` at the latest. OK when every row was delivered.
  // Otherwise failed rows are poison and marked, and the status says, for the worst of them, row,
  // node and cause: InvalidArgument (no such row), DataLoss (failed its seal everywhere),
  // Unavailable (no node serves it), DeadlineExceeded.
  absl::Status ReadRows(const RowsRequest& request, Instant deadline);
  // The same for any shapes and id types; layer-local ids below 0 are skipped. Parts of more than
  // 24,576 rows together are read in turn. Every part must have row_status.
  absl::Status ReadParts(std::span<const ReadPart> parts, Instant deadline);
  // Rows of tokens: out is [token][column of the whole table][row bytes]. InvalidArgument names
  // token and position when an id is outside the vocabulary.
  absl::Status ReadTokens(const TokenSpan& tokens, std::span<std::byte> out,
                          std::span<ReadStatus> status, Instant deadline);

  // A reader for a poller of the caller's own: no lock, no allocation per batch. `options` gives
  // sizes and waiting; table, board, fabrics and clock are filled in. REQUIRES: it is destroyed
  // before the table.
  absl::StatusOr<std::unique_ptr<RowReader>> OpenReader(RowReader::Options options) const;
  struct PrefetcherOptions {
    std::uint32_t steps = 8;  // not released yet
    std::uint32_t max_step_rows = 1u << 18;
    bool poller = false;  // a thread serves; else callers that wait do
    // Of the row cache (client/cache/); 0: none. Mapped rows are never cached.
    std::uint64_t cache_bytes = 0;
    // The cache is that of all processes of this user and tenant on this host that open the table
    // so with the same bytes; for sealed tables. Where it cannot be opened there is none, and the
    // log says why.
    bool host_cache = false;
    // Empty, or a file that WriteHot wrote: its n-grams are read at once and stay in the cache.
    std::string pinned_file;
  };
  // For steps: every layer's reads start at once. REQUIRES: it is destroyed before the table.
  absl::StatusOr<std::unique_ptr<SharedPrefetcher>> OpenPrefetcher(
      const PrefetcherOptions& options) const;
  // Writes the n-grams of the prefetcher's cache that were hit most, at most `most` of them, to a
  // file. FailedPrecondition: it has no cache.
  absl::Status WriteHot(SharedPrefetcher& prefetcher, const std::string& path,
                        std::size_t most) const;
  // What a failed row of a step means, as ReadRows says it.
  absl::Status Explain(const WorstRow& row, const ReadFailure& failure) const;
  // Registers a destination for this table's readers. REQUIRES: destroyed before the pool.
  absl::StatusOr<std::unique_ptr<Destination>> RegisterDestination(
      std::span<std::byte> memory) const;

  // Totals of all readers of this table, since it was opened.
  ReadTotals Totals() const;
  // Of the tenant of this pool's reads, as the controller said last; zeros before it did.
  TenantRate RateOfTenant() const;
  // The newest routes; snapshot for people.
  std::shared_ptr<const Routes> routes() const;
  std::vector<RowRoute> RoutesOf(RowId row) const;

 private:
  friend class Pool;
  struct State;
  explicit Table(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Pool {
 public:
  // Unavailable: no endpoint answered within connect_timeout; says which were tried, why each
  // failed and what to do. InvalidArgument: no endpoint, or one that is not HOST:PORT.
  static absl::StatusOr<std::unique_ptr<Pool>> Open(const PoolOptions& options);
  ~Pool();  // Says goodbye to every node. REQUIRES: its tables are destroyed.
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `name` is name@version or name@alias. NotFound: no such table; FailedPrecondition: not ready,
  // or a digest differs (says both); Unavailable: not every shard can be reached (says which nodes
  // and why).
  absl::StatusOr<std::unique_ptr<Table>> OpenTable(const std::string& name,
                                                   const OpenTableOptions& options);

  // The newest map; its epoch is 0 before the first arrived.
  std::shared_ptr<const ShardMap> map() const;
  // False while the controller is away; reads go on.
  bool connected() const;
  // Every node with which a session was wanted.
  std::vector<ReachedNode> Nodes() const;

 private:
  explicit Pool(std::shared_ptr<PoolCore> core);
  std::shared_ptr<PoolCore> core_;
};

}  // namespace engram::client
