// What an engine does with the rows next, in small: it quantises them again and multiplies. Tells
// whether a NaN is still one afterwards.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace {

// Each thread: eight elements to E4M3 with a scale from their greatest magnitude, then their sum of
// squares in FP32, as a dot product with weights would have it.
__global__ void Quantise(const __nv_bfloat16* in, std::uint32_t count, float* sums) {
  const std::uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count / 8) return;
  float greatest = 0;
  for (int i = 0; i < 8; ++i) greatest = fmaxf(greatest, fabsf(__bfloat162float(in[at * 8 + i])));
  const float scale = greatest > 0 ? greatest / 448.0f : 1.0f;
  float sum = 0;
  for (int i = 0; i < 8; ++i) {
    const __nv_fp8_e4m3 narrow(__bfloat162float(in[at * 8 + i]) / scale);
    const float back = static_cast<float>(narrow) * scale;
    sum += back * back;
  }
  sums[at] = sum;
}

}  // namespace

cudaError_t LaunchQuantise(const void* bf16, std::uint32_t count, float* sums,
                           cudaStream_t stream) {
  Quantise<<<(count / 8 + 255) / 256, 256, 0, stream>>>(static_cast<const __nv_bfloat16*>(bf16),
                                                        count, sums);
  return cudaGetLastError();
}
