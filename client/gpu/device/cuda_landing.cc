#include "client/gpu/device/cuda_landing.h"

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {
namespace {

constexpr std::uint64_t kCheckLimitNs = 10'000'000'000;

int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaLanding>> CudaLanding::Open(int device) {
  const CurrentDevice current(device);
  if (!current.status().ok()) return current.status();
  std::unique_ptr<CudaLanding> out(new CudaLanding(device));
  if (absl::Status status = out->Start(); !status.ok()) return status;
  return out;
}

absl::Status CudaLanding::Start() {
  cudaDeviceProp properties;
  absl::Status status =
      FromCuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device_));
  if (status.ok()) status = FromCuda("loading the kernels", LoadKernels());
  if (!status.ok()) return status;
  facts_.name = absl::StrCat("GPU ", device_, " (", properties.name, ")");
  facts_.can_land = Attribute(cudaDevAttrGPUDirectRDMASupported, device_) != 0;
  facts_.is_ordered = Attribute(cudaDevAttrGPUDirectRDMAWritesOrdering, device_) >=
                      cudaGPUDirectRDMAWritesOrderingOwner;
  facts_.can_flush = (Attribute(cudaDevAttrGPUDirectRDMAFlushWritesOptions, device_) &
                      cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
  auto word = PinnedMemory::Create(sizeof(Word));
  if (!word.ok()) return word.status();
  word_ = *std::move(word);
  auto result = DeviceMemory::Create(sizeof(CheckResult));
  if (!result.ok()) return result.status();
  result_ = *std::move(result);
  return FromCuda("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaLanding::~CudaLanding() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

bool CudaLanding::Flush() {
  const CurrentDevice current(device_);
  return current.status().ok() &&
         cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                            cudaFlushGPUDirectRDMAWritesToOwner) == cudaSuccess;
}

absl::StatusOr<std::span<std::byte>> CudaLanding::TestMemory(std::size_t bytes) {
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  auto memory = DeviceMemory::Create(bytes);
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  bytes_ = bytes;
  return std::span(memory_.as<std::byte>(), bytes);
}

absl::Status CudaLanding::StartCheck(std::uint64_t seed, Word round) {
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  absl::Status status = FromCuda(
      "cudaMemsetAsync", cudaMemsetAsync(result_.as<void>(), 0, sizeof(CheckResult), stream_));
  if (!status.ok()) return status;
  return FromCuda("check kernel", LaunchCheck(memory_.as<std::uint64_t>(), bytes_ / 8, seed,
                                              reinterpret_cast<const Word*>(word_.device()), round,
                                              kCheckLimitNs, result_.as<CheckResult>(), stream_));
}

absl::StatusOr<std::uint64_t> CudaLanding::FinishCheck() {
  CheckResult result;
  absl::Status status = FromCuda(
      "cudaMemcpyAsync",
      cudaMemcpyAsync(&result, result_.as<void>(), sizeof result, cudaMemcpyDeviceToHost, stream_));
  if (status.ok()) status = FromCuda("check kernel", cudaStreamSynchronize(stream_));
  if (!status.ok()) return status;
  if (result.blocks_timed_out > 0)
    return absl::DeadlineExceededError(
        absl::StrCat(facts_.name, ": the kernel never saw the word"));
  return result.stale;
}

}  // namespace engram::client::gpu
