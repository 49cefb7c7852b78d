#include "client/gpu/device/device_memory.h"

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {

absl::Status FromCuda(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The error is ours now; the next call of the engine must not find it.
  cudaGetLastError();
  const std::string why =
      absl::StrCat(call, ": ", cudaGetErrorString(error), " (", static_cast<int>(error), ")");
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      return absl::UnavailableError(
          absl::StrCat("no GPU: ", why, "; read into host memory instead, or install the driver"));
    case cudaErrorInvalidDevice:
      return absl::InvalidArgumentError(absl::StrCat(why, "; ask engram_gpu_device_count"));
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(
          absl::StrCat(why, "; ask for fewer slots or tokens, or raise memlock"));
    default: return absl::InternalError(why);
  }
}

CurrentDevice::CurrentDevice(int device) {
  status_ = FromCuda("cudaGetDevice", cudaGetDevice(&before_));
  if (status_.ok()) status_ = FromCuda("cudaSetDevice", cudaSetDevice(device));
}

CurrentDevice::~CurrentDevice() {
  if (status_.ok()) cudaSetDevice(before_);
}

absl::StatusOr<PinnedMemory> PinnedMemory::Create(std::size_t bytes) {
  auto buffer = fabric::HostBuffer::Create(bytes);
  if (!buffer.ok()) return buffer.status();
  void* const data = buffer->bytes().data();
  const unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
  absl::Status status =
      FromCuda("cudaHostRegister", cudaHostRegister(data, buffer->bytes().size(), flags));
  if (!status.ok()) return status;
  PinnedMemory out;
  out.buffer_ = *std::move(buffer);
  void* device = nullptr;
  status = FromCuda("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&device, data, 0));
  if (!status.ok()) {
    cudaHostUnregister(data);
    return status;
  }
  out.device_ = static_cast<std::byte*>(device);
  return out;
}

PinnedMemory::~PinnedMemory() {
  if (device_ != nullptr) cudaHostUnregister(buffer_.bytes().data());
}

absl::StatusOr<DeviceMemory> DeviceMemory::Create(std::size_t bytes) {
  DeviceMemory out;
  absl::Status status = FromCuda("cudaMalloc", cudaMalloc(&out.data_, bytes == 0 ? 1 : bytes));
  if (status.ok()) status = FromCuda("cudaMemset", cudaMemset(out.data_, 0, bytes));
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<DeviceMemory> DeviceMemory::CopyOf(const void* data, std::size_t bytes) {
  auto out = Create(bytes);
  if (!out.ok()) return out;
  const absl::Status status =
      FromCuda("cudaMemcpy", cudaMemcpy(out->as<void>(), data, bytes, cudaMemcpyHostToDevice));
  if (!status.ok()) return status;
  return out;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

}  // namespace engram::client::gpu
