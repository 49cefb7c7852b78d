/* The GPU path of the Engram memory pool's client, C ABI: libengram_gpu, beside libengram and only
 * where CUDA was there when it was built. An engine whose row ids exist only on the GPU posts them
 * from a kernel, goes on, and finds the rows of each layer dequantised when the layer starts: no
 * copy to the host, no callback, no synchronisation. docs/gpu.md tells how, and what has run where.
 *
 * Functions that take a stream (a cudaStream_t) queue kernels on it and may be captured in a graph;
 * they return at once. What such a kernel meets is told by engram_gpu_ring_layer_end, and in the
 * rows: those that are not there are NaN in every element, those that were skipped are zeros.
 *
 * Thread class: every function is thread-safe, except that one slot's functions are called in the
 * order in which the stream shall run them. REQUIRES of a slot: what a step queued on the GPU is
 * over before the slot's next step posts (one stream, or streams that join); a slot is in one
 * captured graph at a time that runs. */
#ifndef ENGRAM_ENGRAM_GPU_H_
#define ENGRAM_ENGRAM_GPU_H_

#include <engram/engram.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the last failed call of this library on this thread said. Valid until the next one. */
ENGRAM_API const char* engram_gpu_last_error(void);
/* UNAVAILABLE: no driver, or no GPU. */
ENGRAM_API engram_status engram_gpu_device_count(int* count);

/* ---- the ring: ids to the client, rows back ---- */

typedef struct engram_gpu_ring engram_gpu_ring;

typedef struct engram_gpu_ring_options {
  size_t struct_size;
  int32_t device;
  uint32_t slots;      /* steps in flight, each with buffers of its own; 0: 2, the least */
  uint32_t max_tokens; /* of one step, padding included */
  uint32_t columns;    /* of each layer, that this rank reads; 0: all */
  uint32_t id_type;    /* engram_id_type: as the engine's ids are */
  uint32_t reserved;
  const uint64_t* needed_in_ns; /* NULL, or one a layer of the table: from the doorbell on */
  uint64_t step_timeout_ns;     /* rows that are not there by then have failed; 0: 1 s */
  uint64_t wait_timeout_ns;     /* of each wait of the GPU; 0: 2 s */
  uint64_t spin_ns; /* the thread that looks at the doorbells naps after so long; 0: never */
} engram_gpu_ring_options;

ENGRAM_API void engram_gpu_ring_options_init(engram_gpu_ring_options* options);
/* Allocates pinned memory for slots x max_tokens rows of every layer, at addresses that stay, and
 * starts a thread. INVALID_ARGUMENT: rows that are not E4M3 with UE8M0 scales. */
ENGRAM_API engram_status engram_gpu_ring_open(engram_table* table,
                                              const engram_gpu_ring_options* options,
                                              engram_gpu_ring** ring);
/* REQUIRES: no stream uses the ring any more, and its table is open. NULL is ignored. */
ENGRAM_API void engram_gpu_ring_close(engram_gpu_ring* ring);

/* Ids of one step in GPU memory, of each layer's own table; negative: skip. */
typedef struct engram_gpu_ids {
  size_t struct_size;
  const void* ids;
  size_t token_stride;           /* elements; 0: [token][layer][column] */
  size_t layer_stride;           /* elements; 0: columns */
  uint32_t tokens;               /* those that count */
  uint32_t kind;                 /* engram_step_kind */
  const uint32_t* device_tokens; /* NULL, or where the GPU finds how many count */
} engram_gpu_ids;

/* Starts a step in the slot: all layers at once. Steps of a slot are numbered from 1, one for each
 * time that this runs on the GPU. */
ENGRAM_API engram_status engram_gpu_ring_post(engram_gpu_ring* ring, uint32_t slot,
                                              const engram_gpu_ids* ids, void* stream);
/* The stream goes on when the layer (an index) is settled, or after wait_timeout_ns. */
ENGRAM_API engram_status engram_gpu_ring_wait(engram_gpu_ring* ring, uint32_t slot, uint32_t layer,
                                              void* stream);

/* Scale byte 0 means 0.0, as in vLLM, and not 2^-127, as in SGLang. */
#define ENGRAM_GPU_ZERO_SCALE_IS_ZERO 1u
#define ENGRAM_GPU_FOLD_NEGATIVE_ZERO 2u /* -0 becomes +0 */
#define ENGRAM_GPU_COLUMN_MAJOR 4u       /* [column][token][row], not [token][column][row] */

/* Either bf16, or values and scales, in GPU memory. */
typedef struct engram_gpu_output {
  size_t struct_size;
  uint32_t tokens; /* rows of padding tokens become zeros */
  uint32_t flags;
  void* bf16;   /* aligned to 16 bytes */
  void* values; /* E4M3, aligned to 8 bytes */
  void* scales; /* UE8M0, one for 32 values */
} engram_gpu_output;

/* After the wait for the layer: its rows, unpacked, into `out`. */
ENGRAM_API engram_status engram_gpu_ring_deliver(engram_gpu_ring* ring, uint32_t slot,
                                                 uint32_t layer, const engram_gpu_output* out,
                                                 void* stream);

typedef enum engram_gpu_layer_end {
  ENGRAM_GPU_PENDING = 0, /* the GPU has not come that far */
  ENGRAM_GPU_READY = 1,
  ENGRAM_GPU_ROWS_FAILED = 2, /* those rows are NaN, the others are right */
  ENGRAM_GPU_NOT_READ = 3,    /* the client refused the step or was closed: all rows are NaN */
  ENGRAM_GPU_TIMED_OUT = 4,   /* the GPU's wait ended first: all rows are NaN */
  ENGRAM_GPU_NOT_RUNG = 5     /* the client had not taken the step before: all rows are NaN */
} engram_gpu_layer_end;

/* How the GPU's wait for a layer of a step ended. Never blocks, and asks the GPU nothing.
 * NOT_FOUND: the slot is at a later step. */
ENGRAM_API engram_status engram_gpu_ring_layer_end(engram_gpu_ring* ring, uint32_t slot,
                                                   uint32_t layer, uint32_t step, uint32_t* end);

/* ---- hash: tokens to row ids, where the engine has no kernel of its own ---- */

typedef struct engram_gpu_hasher engram_gpu_hasher;

/* The "deepseek-v4.1" address function. Arrays are copied. */
typedef struct engram_gpu_hasher_options {
  size_t struct_size;
  int32_t device;
  uint32_t layers, max_order, heads;
  uint64_t raw_vocab, compressed_vocab;
  int64_t pad_token;            /* raw id */
  const uint64_t* column_rows;  /* [layers][(max_order - 1) * heads] */
  const int64_t* multipliers;   /* [layers][max_order], by look-back distance */
  const int32_t* token_map;     /* [raw_vocab], or NULL: identity */
  int64_t dead_token;           /* raw id that blocks look-back wherever it stands; -1: none */
  uint32_t skip_dead, reserved; /* 1: rows of dead positions are -1 */
} engram_gpu_hasher_options;

ENGRAM_API void engram_gpu_hasher_options_init(engram_gpu_hasher_options* options);
ENGRAM_API engram_status engram_gpu_hasher_open(const engram_gpu_hasher_options* options,
                                                engram_gpu_hasher** hasher);
/* REQUIRES: no stream uses it any more. NULL is ignored. */
ENGRAM_API void engram_gpu_hasher_close(engram_gpu_hasher* hasher);

/* In GPU memory: the tokens of one or many sequences, one behind the other. */
typedef struct engram_gpu_tokens {
  size_t struct_size;
  const int64_t* tokens;
  const uint8_t* dead; /* NULL, or one flag a token */
  uint32_t count;      /* padding included */
  uint32_t reserved;
  const uint32_t* sequence; /* of each token; NULL: one sequence */
  const uint32_t* first;    /* of each sequence: its first token; NULL: token 0 */
  const int64_t* lookback; /* [sequence][max_order - 1], oldest first; negative: nothing; or NULL */
  const uint8_t* lookback_dead;
  const uint32_t* live_tokens; /* NULL: all; the ids of the others are -1 */
} engram_gpu_tokens;

/* Writes [token][layer][columns] ids of each layer's own table, of every column_step-th column from
 * first_column on. A token outside the vocabulary gives ids outside every table: those rows fail.
 */
ENGRAM_API engram_status engram_gpu_hash(engram_gpu_hasher* hasher, const engram_gpu_tokens* tokens,
                                         uint32_t first_column, uint32_t columns,
                                         uint32_t column_step, void* ids, uint32_t id_type,
                                         void* stream);

#ifdef __cplusplus
}
#endif

#endif /* ENGRAM_ENGRAM_GPU_H_ */
