// Memory that the GPU path needs, owned: pinned host memory that the GPU sees, and the GPU's own.
// Addresses stay for the life of the object. What CUDA says becomes a Status; a machine without a
// driver or a GPU is Unavailable. Thread-compatible.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/memory.h"

namespace engram::client::gpu {

// OK, or what `call` said.
absl::Status FromCuda(const char* call, cudaError_t error);

// Makes `device` current on this thread while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  int before_ = 0;
  absl::Status status_;
};

// Host memory on huge pages where they are to be had, registered as pinned and mapped: exactly as
// much as was asked for, unlike cudaHostAlloc's pool. Zeros at first.
class PinnedMemory {
 public:
  // REQUIRES: a device is current.
  static absl::StatusOr<PinnedMemory> Create(std::size_t bytes);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~PinnedMemory();

  std::byte* host() const { return buffer_.bytes().data(); }
  std::byte* device() const { return device_; }  // the same bytes, as the GPU sees them
  std::size_t bytes() const { return buffer_.bytes().size(); }

 private:
  fabric::HostBuffer buffer_;
  std::byte* device_ = nullptr;
};

class DeviceMemory {
 public:
  // REQUIRES: a device is current. Zeros at first.
  static absl::StatusOr<DeviceMemory> Create(std::size_t bytes);
  // A copy of host memory.
  static absl::StatusOr<DeviceMemory> CopyOf(const void* data, std::size_t bytes);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceMemory();

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace engram::client::gpu
