/* The Engram memory pool's client library, C ABI.
 *
 * A pool is opened once per process, a table once per use; rows are read into the caller's memory.
 * Handles are opaque. Functions that can fail return engram_status; engram_last_error() then says,
 * for people, which thing, which value, which limit and what to do next. Nothing throws, nothing
 * aborts on bad arguments. Option and info structs start with `struct_size`: set it to sizeof the
 * struct; fields a caller's older struct lacks take their defaults.
 *
 * Thread class: every function is thread-safe unless it says otherwise. A handle must not be used
 * after, or while, it is closed. Nothing is started before engram_pool_open: no thread, no socket,
 * no gRPC object. A forked child cannot use handles of its parent, nor open a pool if its parent
 * had one open at the fork: calls return ENGRAM_FAILED_PRECONDITION there. */
#ifndef ENGRAM_ENGRAM_H_
#define ENGRAM_ENGRAM_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ENGRAM_API __attribute__((visibility("default")))
#else
#define ENGRAM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum engram_status {
  ENGRAM_OK = 0,
  ENGRAM_INVALID_ARGUMENT = 1,    /* the caller's mistake */
  ENGRAM_NOT_FOUND = 2,           /* no such table, version, layer or column */
  ENGRAM_FAILED_PRECONDITION = 3, /* digest mismatch, table not ready, forked child */
  ENGRAM_UNAVAILABLE = 4,         /* pool or node cannot be reached; some rows failed */
  ENGRAM_DEADLINE_EXCEEDED = 5,   /* some rows were not there in time */
  ENGRAM_DATA_LOSS = 6,           /* a row failed its seal on every replica */
  ENGRAM_RESOURCE_EXHAUSTED = 7,  /* memory, descriptors, a bound of this library */
  ENGRAM_PERMISSION_DENIED = 8,
  ENGRAM_INTERNAL = 9 /* a bug of ours: please report */
} engram_status;

/* Per row, one byte. Rows that are not ENGRAM_ROW_OK or ENGRAM_ROW_SKIPPED hold the dtype's poison
 * pattern. */
typedef enum engram_row_status {
  ENGRAM_ROW_OK = 0,
  ENGRAM_ROW_FAILED = 1,
  ENGRAM_ROW_TIMED_OUT = 2,
  ENGRAM_ROW_CORRUPT = 3,
  ENGRAM_ROW_SKIPPED = 4 /* id was negative; the row is zeros */
} engram_row_status;

/* "0.1.0". The pointer is valid for ever. */
ENGRAM_API const char* engram_version(void);
/* "unavailable", ... The pointer is valid for ever. */
ENGRAM_API const char* engram_status_name(engram_status status);
/* What the last failed call on this thread said; "" if none failed. Valid until the next call on
 * this thread. */
ENGRAM_API const char* engram_last_error(void);

/* level: 0 error, 1 warning, 2 info. Called from library threads; must not call back into the
 * library. NULL: no log (the default). */
typedef void (*engram_log_fn)(int level, const char* message, void* user);
ENGRAM_API void engram_set_log(engram_log_fn log, void* user);

/* What every open table of this process has read, as Prometheus text (engram_client_*,
 * engram_prefetch_*, engram_map_epoch; labels pool and table), for an engine that serves it beside
 * its own metrics. A table's counters begin at 0 when it is opened and go with it. *needed becomes
 * the bytes of the text with its final 0; nothing is written where `bytes` is 0, and `text` may be
 * NULL then. RESOURCE_EXHAUSTED: `bytes` is less. No call of the data plane waits for it. */
ENGRAM_API engram_status engram_metrics(char* text, size_t bytes, size_t* needed);

/* ---- pool ---- */

typedef struct engram_pool engram_pool;

typedef struct engram_pool_options {
  size_t struct_size;
  const char*
      endpoints; /* "host:port[,host:port]"; NULL: $ENGRAM_ENDPOINT, then the current context */
  const char* client_name; /* shown to operators; NULL: program name and pid */
  const char* tenant;      /* NULL: "default" */
  /* NULL or "auto"; else read only over "mapped", "stream", "ofi" or "ucx". "ofi" takes the
   * libfabric provider of $ENGRAM_OFI_PROVIDER (tcp;ofi_rxm) on the interface that has the address
   * $ENGRAM_OFI_HOST (127.0.0.1); "ucx" the transports of $ENGRAM_UCX_TLS (UCX's choice) on the
   * devices of $ENGRAM_UCX_DEVICES (lo). */
  const char* fabric;
  /* 0: 5 s; 15 s with several endpoints, which may be electing a leader. */
  uint64_t connect_timeout_ns;
  uint64_t spin_ns; /* data-plane waiting: spin this long, then block; 0: 50 us; UINT64_MAX: never
                       block */
} engram_pool_options;

/* Fills `options` with the defaults, struct_size included. */
ENGRAM_API void engram_pool_options_init(engram_pool_options* options);
/* `options` may be NULL. On failure *pool is NULL. */
ENGRAM_API engram_status engram_pool_open(const engram_pool_options* options, engram_pool** pool);

/* PEM files of this client's certificate, its key and the authorities; they are read again when
 * they change. */
typedef struct engram_tls_files {
  size_t struct_size;
  const char* cert;
  const char* key;
  const char* ca;
} engram_tls_files;

/* The same over mutual TLS: the tenant is the certificate's. Files that are NULL, all of them where
 * `tls` is NULL, are those of $ENGRAM_TLS_CERT, $ENGRAM_TLS_KEY and $ENGRAM_TLS_CA, as they are in
 * engram_pool_open; none at all: no TLS. */
ENGRAM_API engram_status engram_pool_open_tls(const engram_pool_options* options,
                                              const engram_tls_files* tls, engram_pool** pool);
/* Says goodbye to every node. REQUIRES: its tables are closed. NULL is ignored. */
ENGRAM_API void engram_pool_close(engram_pool* pool);

/* ---- table ---- */

typedef struct engram_table engram_table;

typedef struct engram_table_options {
  size_t struct_size;
  const char* expected_spec_digest;    /* NULL: any; else FAILED_PRECONDITION on a difference */
  const char* expected_content_digest; /* NULL: any */
  uint64_t open_timeout_ns;            /* 0: 10 s; until every shard has a route */
} engram_table_options;

ENGRAM_API void engram_table_options_init(engram_table_options* options);
/* `name` is "name@version" or "name@alias"; `options` may be NULL. On failure *table is NULL. A
 * table that was opened by an alias stays at the version that the alias named then. */
ENGRAM_API engram_status engram_table_open(engram_pool* pool, const char* name,
                                           const engram_table_options* options,
                                           engram_table** table);
ENGRAM_API void engram_table_close(engram_table* table);

/* What the alias by which the table was opened names now, "name@version", when that is another
 * version; else "". Never blocks: ask between steps. `bytes` of `name`: ENGRAM_NAME_BYTES are
 * enough for every name. */
#define ENGRAM_NAME_BYTES 128
ENGRAM_API engram_status engram_table_pending(const engram_table* table, char* name, size_t bytes);
/* The same as an event: *fd is readable (poll, epoll, select) for as long as something is pending.
 * Poll it only, neither read nor close it; it goes with the table. On failure *fd is -1. */
ENGRAM_API engram_status engram_table_pending_fd(const engram_table* table, int* fd);
/* Opens what is pending; `table` stays open and readable until the caller closes it, once its last
 * step is done. The adopted version must have the spec_digest of `table` unless `options` expects
 * another one. FAILED_PRECONDITION: nothing is pending. On failure *adopted is NULL. */
ENGRAM_API engram_status engram_table_adopt(engram_table* table,
                                            const engram_table_options* options,
                                            engram_table** adopted);

/* Strings live as long as the table. */
typedef struct engram_table_info {
  size_t struct_size;
  const char* name;
  const char* version;
  const char* table_uid;
  const char* spec_digest;
  const char* content_digest;
  uint64_t rows; /* of all layers */
  uint32_t layers;
  uint32_t columns_per_layer;
  uint32_t row_bytes; /* packed, without seal */
  uint32_t planes;
  uint32_t lookback; /* tokens before a position that its rows depend on */
  uint32_t reserved;
} engram_table_info;

typedef struct engram_layer_info {
  size_t struct_size;
  uint32_t layer; /* the model's layer number */
  uint32_t reserved;
  uint64_t first_row; /* in the whole table */
  uint64_t rows;
} engram_layer_info;

typedef struct engram_column_info {
  size_t struct_size;
  uint32_t layer, order, head, reserved;
  uint64_t first_row; /* in its layer's own table */
  uint64_t rows;
} engram_column_info;

typedef struct engram_plane_info {
  size_t struct_size;
  const char* name;
  const char* dtype; /* "e4m3", "ue8m0", "bf16", "nvfp4", "f8scale", "bytes" */
  uint32_t offset;   /* inside a packed row */
  uint32_t bytes;
} engram_plane_info;

/* The caller sets info->struct_size. `index` counts from 0; NOT_FOUND names the count. Columns are
 * numbered over the whole table, layers in order. */
ENGRAM_API engram_status engram_table_get_info(const engram_table* table, engram_table_info* info);
ENGRAM_API engram_status engram_table_get_layer(const engram_table* table, uint32_t index,
                                                engram_layer_info* info);
ENGRAM_API engram_status engram_table_get_column(const engram_table* table, uint32_t index,
                                                 engram_column_info* info);
ENGRAM_API engram_status engram_table_get_plane(const engram_table* table, uint32_t index,
                                                engram_plane_info* info);

/* ---- addresses ---- */

/* Raw token ids of one sequence. Look-back is what stands before tokens[0], oldest first; without
 * it the sequence starts at tokens[0]. A dead token blocks its own and all older look-back
 * positions. */
typedef struct engram_tokens {
  size_t struct_size;
  const int64_t* tokens;
  size_t count;
  const uint8_t* dead; /* NULL, or one flag a token */
  const int64_t* lookback;
  size_t lookback_count;
  const uint8_t* lookback_dead; /* NULL, or one flag a look-back token */
} engram_tokens;

/* Writes [count][layers][columns_per_layer] rows of each layer's own table. `capacity` is in
 * elements; a smaller one is INVALID_ARGUMENT. */
ENGRAM_API engram_status engram_table_addresses(const engram_table* table,
                                                const engram_tokens* tokens, int64_t* rows,
                                                size_t capacity);

/* ---- reads ---- */

typedef enum engram_id_type { ENGRAM_ID_INT32 = 0, ENGRAM_ID_INT64 = 1 } engram_id_type;

typedef struct engram_rows {
  size_t struct_size;
  const void* ids; /* negative: skip, the row becomes zeros */
  size_t count;
  uint32_t id_type;    /* engram_id_type */
  int32_t layer_index; /* -1: ids over the whole table; else over the own table of that layer
                          (index, not number) */
} engram_rows;

/* Reads count rows of row_bytes each, packed, into `out`. `row_status` is NULL or takes one
 * engram_row_status a row. timeout_ns 0: 1 s. Returns OK when every row was delivered or skipped;
 * else the worst row's reason, and every failed row is poisoned and marked. Rows outside the table:
 * INVALID_ARGUMENT, nothing is read. */
ENGRAM_API engram_status engram_table_read_rows(engram_table* table, const engram_rows* rows,
                                                void* out, size_t out_bytes, uint8_t* row_status,
                                                uint64_t timeout_ns);
/* Reads [count][layers][columns_per_layer] rows for the tokens. Dead positions are read like
 * others: their rows are those of the pad token. */
ENGRAM_API engram_status engram_table_read_tokens(engram_table* table, const engram_tokens* tokens,
                                                  void* out, size_t out_bytes, uint8_t* row_status,
                                                  uint64_t timeout_ns);

/* Totals since the table was opened; the last two are of the tenant. */
typedef struct engram_stats {
  size_t struct_size;
  uint64_t rows_ok;
  uint64_t rows_failed;
  uint64_t rows_skipped;
  uint64_t rows_duplicate; /* asked for twice in one batch, read once */
  uint64_t rows_retried;
  uint64_t seal_failures;
  uint64_t bytes_read;
  uint64_t batches;
  uint64_t rows_mapped; /* rows_ok by fabric */
  uint64_t rows_stream;
  uint64_t rows_ofi;
  uint64_t layers_ready; /* of prefetched steps */
  uint64_t layers_failed;
  uint64_t layers_cancelled;
  uint64_t layers_late; /* not ready at their needed_in_ns */
  uint64_t rows_late;
  uint64_t hedges_started; /* late rows asked of another replica as well */
  uint64_t hedges_won;
  uint64_t rows_joined;     /* copied from a read that another step had under way */
  uint64_t leases_expired;  /* batches read again because a lease ran out */
  uint64_t peers_abandoned; /* nodes whose reads were flushed: a deadline, a cancel, a late node */
  uint64_t cache_hits;      /* rows that were looked up and found in the row cache */
  uint64_t cache_misses;
  uint64_t cache_evictions; /* n-grams that made room for others */
  uint64_t cache_bytes;     /* of the rows that are cached now; of a host cache, its size */
  uint64_t rows_hinted;     /* taken to be cached */
  /* As the controller answered the last report of reads. What the tenant may read, 0: no limit; and
   * what all its clients together do, one-sided reads included. Both are 0 before the first. */
  uint64_t tenant_budget_rows_per_second;
  uint64_t tenant_rows_per_second;
} engram_stats;

ENGRAM_API engram_status engram_table_get_stats(const engram_table* table, engram_stats* stats);

/* ---- where the rows of a step land ---- */

typedef enum engram_row_order {
  ENGRAM_TOKEN_COLUMN_ROW = 0, /* [token][column][row] */
  ENGRAM_COLUMN_TOKEN_ROW = 1  /* [column][token][row] */
} engram_row_order;

/* One block a layer, one after the other. Each holds the rows of some columns of its layer, packed
 * or as one array a plane. Addresses depend on max_tokens, not on how many tokens a step has, so
 * they are the same for every step; places of tokens that a step does not have stay untouched. */
typedef struct engram_layout {
  size_t struct_size;
  uint32_t max_tokens;   /* of one step */
  uint32_t order;        /* engram_row_order */
  uint32_t split_planes; /* 1: the table's two planes (values, scales) apart; 0: packed rows */
  uint32_t first_column; /* of each layer: first_column + i * column_step for i < columns */
  uint32_t columns;      /* 0: as many as there are */
  uint32_t column_step;  /* 0: 1, columns side by side */
} engram_layout;

/* Of one plane (packed rows: plane 0). What row (layer, token, column) has in it stands at
 * offset + layer * layer_stride + token * token_stride + column * column_stride,
 * column counting those that are read. Layer blocks and planes start on multiples of 64 bytes. */
typedef struct engram_layout_info {
  size_t struct_size;
  size_t bytes; /* of everything: what the output must have at least */
  size_t layer_stride;
  size_t offset;
  size_t token_stride;
  size_t column_stride;
  uint32_t plane_bytes; /* of one row in this plane */
  uint32_t planes;      /* 1: packed rows */
  uint32_t layers;
  uint32_t columns; /* of one layer */
} engram_layout_info;

ENGRAM_API engram_status engram_table_get_layout(const engram_table* table,
                                                 const engram_layout* layout, uint32_t plane,
                                                 engram_layout_info* info);

/* Memory that rows land in directly on fabrics that need registered memory; on others registering
 * changes nothing but the checks. Slow: once a buffer, not once a step. */
typedef uint64_t engram_destination; /* never 0, never used again */
#define ENGRAM_DESTINATION_ALIGNMENT 16

/* INVALID_ARGUMENT: unaligned, not mapped, not writable, or overlapping a destination that is
 * registered (what it was is gone: unregister before freeing). On failure *destination is 0. */
ENGRAM_API engram_status engram_table_register_destination(engram_table* table, void* memory,
                                                           size_t bytes,
                                                           engram_destination* destination);
/* FAILED_PRECONDITION: a step that is not released, or a slot, uses it; nothing changes then. Or:
 * the memory was unmapped while it was registered; it is unregistered nevertheless. */
ENGRAM_API engram_status engram_table_unregister_destination(engram_table* table,
                                                             engram_destination destination);

/* ---- steps ----
 *
 * A step starts the reads of all its layers at once; each layer is waited for, polled and cancelled
 * by itself. No layer is ready, failed or cancelled while a read that targets its memory is under
 * way. */

typedef struct engram_prefetcher engram_prefetcher;
typedef uint64_t engram_ticket; /* of one submitted step; never 0, never used again */

typedef struct engram_prefetcher_options {
  size_t struct_size;
  uint32_t steps;         /* submitted and not released; 0: 8 */
  uint32_t max_step_rows; /* 0: 262,144 */
  uint32_t poller;        /* 1: a thread serves the steps; 0: callers do while they wait or poll */
  uint32_t check_memory;  /* 1, to find mistakes: each submit looks its output up in the process's
                             memory map, so that freed or read-only memory is INVALID_ARGUMENT
                             instead of a fault; some tens of microseconds a step */
  uint64_t cache_bytes;   /* of a cache of rows that were read before; 0: none. Rows that are mapped
                             are not cached: reading one costs no more than looking it up */
  const char* pinned_file; /* NULL, or a file of engram_dump_hot: its n-grams are read at once, stay
                              in the cache and take a quarter of it at most */
  uint32_t host_cache; /* 1: the cache is one of all processes of this user and tenant on this host
                          that open the table so, with the same cache_bytes. The table must have
                          seals. Where it cannot be had there is none, and the log says why */
  uint32_t reserved;
} engram_prefetcher_options;

ENGRAM_API void engram_prefetcher_options_init(engram_prefetcher_options* options);
/* `options` may be NULL. On failure *prefetcher is NULL. */
ENGRAM_API engram_status engram_prefetcher_open(engram_table* table,
                                                const engram_prefetcher_options* options,
                                                engram_prefetcher** prefetcher);
/* Cancels what is under way. REQUIRES: its table is open. NULL is ignored. */
ENGRAM_API void engram_prefetcher_close(engram_prefetcher* prefetcher);

typedef enum engram_step_kind {
  ENGRAM_STEP_DECODE = 0,
  ENGRAM_STEP_VERIFY = 1,
  ENGRAM_STEP_PREFILL = 2 /* served after the others */
} engram_step_kind;

/* Rows of one layer: runs (tokens) of `columns` ids each. */
typedef struct engram_layer_rows {
  size_t struct_size;
  const void* ids; /* negative: skip, the row becomes zeros; copied by submit */
  size_t runs;
  size_t id_stride; /* ids from one run to the next; 0: columns * column_id_stride */
  uint32_t columns;
  uint32_t id_type;    /* engram_id_type */
  int32_t layer_index; /* -1: ids over the whole table; else over the own table of that layer */
  uint32_t reserved;
  void* out;
  size_t out_bytes;
  size_t row_stride;       /* bytes; 0: row_bytes */
  size_t run_stride;       /* bytes; 0: columns * row_stride */
  uint64_t needed_in_ns;   /* from submit on; 0: no time */
  size_t column_id_stride; /* ids from one column to the next; 0: 1 */
} engram_layer_rows;

/* Either `tokens` is set: all layers of the table into `out`; or `layer_rows` is. Layers are
 * numbered in the table's order, or as given.
 *
 * Without a layout, tokens land as [count][layers][columns_per_layer], and layer_rows say
 * themselves where. With one, both land in `out` as it says: layer_rows then give the ids of *all*
 * columns of their layer (`columns` is 0 or columns_per_layer), of which the layout takes its own,
 * and leave out, out_bytes, row_stride and run_stride 0; the block is that of their layer_index. */
typedef struct engram_step {
  size_t struct_size;
  uint32_t kind;   /* engram_step_kind */
  uint32_t layers; /* entries of layer_rows */
  const engram_tokens* tokens;
  void* out;
  size_t out_bytes;
  const uint64_t* needed_in_ns; /* NULL, or one a layer of the table */
  const engram_layer_rows* layer_rows;
  uint64_t timeout_ns; /* rows that are not there by then have failed; 0: 1 s */
  const engram_layout* layout;
  engram_destination destination; /* 0: `out` is not registered; else `out` lies in it */
  const char* table_uid; /* NULL, or the table_uid that the rows must be of: FAILED_PRECONDITION
                            when the prefetcher is another's */
  uint32_t
      slot; /* 0, or where: layout, out, out_bytes and destination are the slot's, and 0 here */
  uint32_t fail_bad_ids; /* 0: a row id beyond its layer refuses the step. 1, for ids that nobody
                            could look at before: only that row fails, poisoned and marked */
} engram_step;

/* A step slot: a place that is checked once and used by one step after the other. */
typedef struct engram_slot_options {
  size_t struct_size;
  const engram_layout* layout;
  void* out;
  size_t out_bytes;
  engram_destination destination; /* 0: not registered */
} engram_slot_options;

/* *slot is 1, 2, ...; at most 1,024. It lives as long as the prefetcher. */
ENGRAM_API engram_status engram_prefetcher_add_slot(engram_prefetcher* prefetcher,
                                                    const engram_slot_options* options,
                                                    uint32_t* slot);

/* RESOURCE_EXHAUSTED, busy: every step is in use, or the slot's last step is not released. The
 * output must stay until the step is released. Ids and tokens outside the table or the vocabulary:
 * INVALID_ARGUMENT names the first, its place and the limit, and nothing is read, but see
 * fail_bad_ids. */
ENGRAM_API engram_status engram_prefetcher_submit(engram_prefetcher* prefetcher,
                                                  const engram_step* step, engram_ticket* ticket);
/* `layer` -1: every layer. OK: all rows are there. DEADLINE_EXCEEDED: not yet (the reads go on), or
 * not in the step's time; else why the worst row failed. timeout_ns 0: 1 s. */
ENGRAM_API engram_status engram_prefetcher_wait(engram_prefetcher* prefetcher, engram_ticket ticket,
                                                int32_t layer, uint64_t timeout_ns);

typedef enum engram_layer_state {
  ENGRAM_LAYER_PENDING = 0,
  ENGRAM_LAYER_READY = 1,
  ENGRAM_LAYER_FAILED = 2,    /* at least one row is poison */
  ENGRAM_LAYER_CANCELLED = 3, /* before all rows were there; the missing ones are poison */
  ENGRAM_LAYER_UNKNOWN = 4    /* the ticket was released, or there is no such layer */
} engram_layer_state;

/* Never blocks. *state may be NULL; *late, which may be NULL, tells whether it missed its time. */
ENGRAM_API engram_status engram_prefetcher_poll(engram_prefetcher* prefetcher, engram_ticket ticket,
                                                uint32_t layer, engram_layer_state* state,
                                                int* late);
/* One engram_row_status a row, [token][column] as they were submitted, of a layer that is not
 * pending (FAILED_PRECONDITION: it is). `capacity` is in rows; a smaller one is INVALID_ARGUMENT.
 * *rows, which may be NULL, is how many there are. */
ENGRAM_API engram_status engram_prefetcher_row_status(engram_prefetcher* prefetcher,
                                                      engram_ticket ticket, uint32_t layer,
                                                      uint8_t* row_status, size_t capacity,
                                                      size_t* rows);
/* `layer` -1: every layer. Layers that are settled stay as they are. */
ENGRAM_API engram_status engram_prefetcher_cancel(engram_prefetcher* prefetcher,
                                                  engram_ticket ticket, int32_t layer);
/* Cancels what is pending; the output is the caller's again. Released tickets are ignored. */
ENGRAM_API engram_status engram_prefetcher_release(engram_prefetcher* prefetcher,
                                                   engram_ticket ticket);

/* ---- the row cache of a prefetcher ----
 *
 * Hints are rows that a later step may want. They are put into the cache while no step is under
 * way, and dropped when there are too many, no cache, or when rows are mapped; a prefetcher without
 * a poller reads them while its callers wait or poll. *taken, which may be NULL, is how many rows
 * were not dropped at once. */
ENGRAM_API engram_status engram_prefetcher_hint(engram_prefetcher* prefetcher,
                                                const engram_rows* rows, uint64_t* taken);
/* All rows of the tokens. */
ENGRAM_API engram_status engram_prefetcher_hint_tokens(engram_prefetcher* prefetcher,
                                                       const engram_tokens* tokens,
                                                       uint64_t* taken);
/* Writes the n-grams that the cache gave most often, at most max_ngrams (0: 100,000), hottest
 * first, to a text file that pinned_file takes. Looks at the whole cache: steps wait meanwhile,
 * some milliseconds a 100 MiB. FAILED_PRECONDITION: the prefetcher has no cache. */
ENGRAM_API engram_status engram_dump_hot(engram_prefetcher* prefetcher, const char* file,
                                         uint64_t max_ngrams);

#ifdef __cplusplus
}
#endif

#endif /* ENGRAM_ENGRAM_H_ */
