// What lets one source be a function of the CPU and of the GPU: the mark of such functions, and how
// the lanes that share a row's work are told apart. Includes nothing of CUDA. Thread-safe.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ENGRAM_HOST_DEVICE __host__ __device__
#else
#define ENGRAM_HOST_DEVICE
#endif

namespace engram::client::gpu {

// A caller that does a row's work alone. The kernels have their own: 32 lanes of a warp, of which
// each gets every 32nd piece and all get the result of Xor.
struct OneLane {
  ENGRAM_HOST_DEVICE std::uint32_t lane() const { return 0; }
  ENGRAM_HOST_DEVICE std::uint32_t lanes() const { return 1; }
  ENGRAM_HOST_DEVICE std::uint32_t Xor(std::uint32_t value) const { return value; }
};

}  // namespace engram::client::gpu
