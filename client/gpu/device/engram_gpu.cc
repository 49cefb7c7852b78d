// The C ABI of libengram_gpu.
#include <engram/engram_gpu.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/gpu/device/abi_reads.h"
#include "client/gpu/device/gpu_ring.h"
#include "client/gpu/device/hasher.h"

namespace gpu = engram::client::gpu;

struct engram_gpu_ring {
  std::unique_ptr<gpu::GpuRing> ring;
  bool wide_ids = false;
};
struct engram_gpu_hasher {
  std::unique_ptr<gpu::Hasher> hasher;
};

namespace {

constexpr std::uint32_t kKnownFlags =
    ENGRAM_GPU_ZERO_SCALE_IS_ZERO | ENGRAM_GPU_FOLD_NEGATIVE_ZERO | ENGRAM_GPU_COLUMN_MAJOR;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

engram_status CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return ENGRAM_OK;
    case absl::StatusCode::kInvalidArgument: return ENGRAM_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound: return ENGRAM_NOT_FOUND;
    case absl::StatusCode::kFailedPrecondition: return ENGRAM_FAILED_PRECONDITION;
    case absl::StatusCode::kUnavailable: return ENGRAM_UNAVAILABLE;
    case absl::StatusCode::kDeadlineExceeded: return ENGRAM_DEADLINE_EXCEEDED;
    case absl::StatusCode::kResourceExhausted: return ENGRAM_RESOURCE_EXHAUSTED;
    default: return ENGRAM_INTERNAL;
  }
}

// Runs `body` (-> absl::Status); no exception leaves.
template <class Body>
engram_status Guard(Body body) {
  absl::Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    status = absl::InternalError(absl::StrCat("unexpected exception: ", error.what()));
  }
  if (!status.ok()) LastError() = std::string(status.message());
  return CodeOf(status.code());
}

absl::Status Null(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
}

// The caller's struct, which may be older than ours: what it lacks is zero.
template <class T>
absl::StatusOr<T> Copied(const T* from, const char* what) {
  if (from == nullptr) return Null(what);
  if (from->struct_size < sizeof(std::size_t) || from->struct_size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": struct_size is ", from->struct_size,
                                                   "; set it to sizeof the struct"));
  }
  T out{};
  std::memcpy(&out, from, std::min<std::size_t>(from->struct_size, sizeof out));
  return out;
}

absl::Status FromAbi(engram_status status, const char* what) {
  if (status == ENGRAM_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", engram_last_error()));
}

std::uint64_t OrElse(std::uint64_t value, std::uint64_t otherwise) {
  return value != 0 ? value : otherwise;
}

// What the table's rows are made of, and its layers.
absl::Status ReadTable(engram_table* table, const engram_gpu_ring_options& options,
                       gpu::GpuRing::Options* out) {
  engram_table_info info{};
  info.struct_size = sizeof info;
  if (auto got = FromAbi(engram_table_get_info(table, &info), "table"); !got.ok()) return got;
  engram_plane_info planes[2] = {};
  if (info.planes != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", info.planes, " planes; wanted are e4m3 and ue8m0"));
  for (std::uint32_t i = 0; i < 2; ++i) {
    planes[i].struct_size = sizeof planes[i];
    if (auto got = FromAbi(engram_table_get_plane(table, i, &planes[i]), "plane"); !got.ok())
      return got;
  }
  engram::TableSpec spec;
  for (const engram_plane_info& plane : planes) {
    auto dtype = engram::ParseDType(plane.dtype);
    if (!dtype.ok()) return dtype.status();
    spec.planes.push_back({plane.name, *dtype, plane.bytes});
  }
  auto format = gpu::FormatOf(spec);
  if (!format.ok()) return format.status();
  out->format = *format;
  out->shape.row_bytes = info.row_bytes;
  out->shape.row_stride = (info.row_bytes + 7) / 8 * 8;
  out->shape.layers = info.layers;
  out->shape.columns = options.columns != 0 ? options.columns : info.columns_per_layer;
  if (out->shape.columns > info.columns_per_layer) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns is ", options.columns, "; a layer has ", info.columns_per_layer));
  }
  for (std::uint32_t i = 0; i < info.layers; ++i) {
    engram_layer_info layer{};
    layer.struct_size = sizeof layer;
    if (auto got = FromAbi(engram_table_get_layer(table, i, &layer), "layer"); !got.ok())
      return got;
    const engram::Duration needed_in(options.needed_in_ns == nullptr ? 0 : options.needed_in_ns[i]);
    out->service.layers.push_back({layer.first_row, layer.rows, needed_in});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<gpu::GpuRing>> OpenRing(engram_table* table,
                                                       const engram_gpu_ring_options& options) {
  gpu::GpuRing::Options out;
  out.device = options.device;
  out.shape.slots = options.slots != 0 ? options.slots : 2;
  out.shape.max_tokens = options.max_tokens;
  out.shape.wide_ids = options.id_type == ENGRAM_ID_INT64;
  if (options.id_type > ENGRAM_ID_INT64)
    return absl::InvalidArgumentError(absl::StrCat("id_type is ", options.id_type));
  if (absl::Status status = ReadTable(table, options, &out); !status.ok()) return status;
  out.service.timeout = engram::Duration(OrElse(options.step_timeout_ns, 1'000'000'000));
  out.wait_limit_ns = OrElse(options.wait_timeout_ns, 2'000'000'000);
  if (options.spin_ns != 0) out.poller.spin = engram::Duration(options.spin_ns);
  if (absl::Status status = gpu::RingService::Check(out.shape, out.shape.layers); !status.ok())
    return status;
  const std::uint64_t rows = out.shape.layer_rows() * out.shape.layers;
  const auto open_reads = [&](std::span<std::byte> landing) {
    return gpu::AbiReads::Open(table, out.shape.slots, static_cast<std::uint32_t>(rows), landing);
  };
  return gpu::GpuRing::Open(open_reads, out);
}

}  // namespace

const char* engram_gpu_last_error(void) { return LastError().c_str(); }

engram_status engram_gpu_device_count(int* count) {
  return Guard([&]() -> absl::Status {
    if (count == nullptr) return Null("count");
    *count = 0;
    return gpu::FromCuda("cudaGetDeviceCount", cudaGetDeviceCount(count));
  });
}

void engram_gpu_ring_options_init(engram_gpu_ring_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

engram_status engram_gpu_ring_open(engram_table* table, const engram_gpu_ring_options* options,
                                   engram_gpu_ring** ring) {
  return Guard([&]() -> absl::Status {
    if (ring == nullptr) return Null("ring");
    *ring = nullptr;
    if (table == nullptr) return Null("table");
    auto copied = Copied(options, "options");
    if (!copied.ok()) return copied.status();
    auto opened = OpenRing(table, *copied);
    if (!opened.ok()) return opened.status();
    *ring = new engram_gpu_ring{*std::move(opened)};
    return absl::OkStatus();
  });
}

void engram_gpu_ring_close(engram_gpu_ring* ring) { delete ring; }

engram_status engram_gpu_ring_post(engram_gpu_ring* ring, uint32_t slot, const engram_gpu_ids* ids,
                                   void* stream) {
  return Guard([&]() -> absl::Status {
    if (ring == nullptr) return Null("ring");
    auto from = Copied(ids, "ids");
    if (!from.ok()) return from.status();
    if (from->ids == nullptr) return Null("ids->ids");
    if (from->kind > ENGRAM_STEP_PREFILL)
      return absl::InvalidArgumentError(absl::StrCat("kind is ", from->kind));
    return ring->ring->Post(slot, {from->ids, from->token_stride, from->layer_stride},
                            {from->tokens, from->device_tokens}, from->kind,
                            static_cast<cudaStream_t>(stream));
  });
}

engram_status engram_gpu_ring_wait(engram_gpu_ring* ring, uint32_t slot, uint32_t layer,
                                   void* stream) {
  return Guard([&]() -> absl::Status {
    if (ring == nullptr) return Null("ring");
    return ring->ring->Wait(slot, layer, static_cast<cudaStream_t>(stream));
  });
}

engram_status engram_gpu_ring_deliver(engram_gpu_ring* ring, uint32_t slot, uint32_t layer,
                                      const engram_gpu_output* output, void* stream) {
  return Guard([&]() -> absl::Status {
    if (ring == nullptr) return Null("ring");
    auto out = Copied(output, "out");
    if (!out.ok()) return out.status();
    const bool planes = out->values != nullptr && out->scales != nullptr;
    if ((out->bf16 != nullptr) == planes)
      return absl::InvalidArgumentError("set either bf16, or values and scales");
    if (reinterpret_cast<std::uintptr_t>(out->bf16) % 16 != 0 ||
        reinterpret_cast<std::uintptr_t>(out->values) % 8 != 0)
      return absl::InvalidArgumentError("bf16 is aligned to 16 bytes, values to 8");
    if ((out->flags & ~kKnownFlags) != 0)
      return absl::InvalidArgumentError(
          absl::StrCat("flags are ", out->flags, "; known are ", kKnownFlags));
    gpu::GpuRing::Output to;
    to.bf16.rows = static_cast<std::uint16_t*>(out->bf16);
    to.bf16.rule.zero_scale_is_zero = (out->flags & ENGRAM_GPU_ZERO_SCALE_IS_ZERO) != 0;
    to.bf16.rule.fold_negative_zero = (out->flags & ENGRAM_GPU_FOLD_NEGATIVE_ZERO) != 0;
    to.planes.values = static_cast<std::byte*>(out->values);
    to.planes.scales = static_cast<std::byte*>(out->scales);
    to.tokens = out->tokens;
    to.column_major = (out->flags & ENGRAM_GPU_COLUMN_MAJOR) != 0;
    return ring->ring->Deliver(slot, layer, to, static_cast<cudaStream_t>(stream));
  });
}

engram_status engram_gpu_ring_layer_end(engram_gpu_ring* ring, uint32_t slot, uint32_t layer,
                                        uint32_t step, uint32_t* end) {
  return Guard([&]() -> absl::Status {
    if (ring == nullptr || end == nullptr) return Null(ring == nullptr ? "ring" : "end");
    auto got = ring->ring->End(slot, layer, step);
    if (!got.ok()) return got.status();
    *end = static_cast<std::uint32_t>(*got);
    return absl::OkStatus();
  });
}

void engram_gpu_hasher_options_init(engram_gpu_hasher_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
  options->dead_token = -1;
}

engram_status engram_gpu_hasher_open(const engram_gpu_hasher_options* options,
                                     engram_gpu_hasher** hasher) {
  return Guard([&]() -> absl::Status {
    if (hasher == nullptr) return Null("hasher");
    *hasher = nullptr;
    auto from = Copied(options, "options");
    if (!from.ok()) return from.status();
    if (from->column_rows == nullptr || from->multipliers == nullptr)
      return Null(from->column_rows == nullptr ? "column_rows" : "multipliers");
    auto opened = gpu::Hasher::Open(*from);
    if (!opened.ok()) return opened.status();
    *hasher = new engram_gpu_hasher{*std::move(opened)};
    return absl::OkStatus();
  });
}

void engram_gpu_hasher_close(engram_gpu_hasher* hasher) { delete hasher; }

engram_status engram_gpu_hash(engram_gpu_hasher* hasher, const engram_gpu_tokens* tokens,
                              uint32_t first_column, uint32_t columns, uint32_t column_step,
                              void* ids, uint32_t id_type, void* stream) {
  return Guard([&]() -> absl::Status {
    if (hasher == nullptr || ids == nullptr) return Null(hasher == nullptr ? "hasher" : "ids");
    auto from = Copied(tokens, "tokens");
    if (!from.ok()) return from.status();
    if (from->tokens == nullptr) return Null("tokens->tokens");
    gpu::TokenBatch batch;
    batch.tokens = from->tokens;
    batch.dead = from->dead;
    batch.count = from->count;
    batch.sequence = from->sequence;
    batch.first = from->first;
    batch.before = from->lookback;
    batch.before_dead = from->lookback_dead;
    gpu::HashOutput out;
    if (id_type == ENGRAM_ID_INT32) out.ids32 = static_cast<std::int32_t*>(ids);
    if (id_type == ENGRAM_ID_INT64) out.ids64 = static_cast<std::int64_t*>(ids);
    if (out.ids32 == nullptr && out.ids64 == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("id_type is ", id_type));
    out.first_column = first_column;
    out.columns = columns;
    out.column_step = column_step;
    out.live = {from->count, from->live_tokens};
    out.padded = from->count;
    return hasher->hasher->Hash(batch, out, static_cast<cudaStream_t>(stream));
  });
}
