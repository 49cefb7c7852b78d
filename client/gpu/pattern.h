// The words that the test of direct landing reads, one function for the CPU that writes them and
// the GPU that compares. Thread-safe.
#pragma once

#include <cstdint>

#include "client/gpu/host_device.h"

namespace engram::client::gpu {

// Word `index` of what round `seed` reads.
ENGRAM_HOST_DEVICE constexpr std::uint64_t PatternWord(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t mixed = seed * 0x9e3779b97f4a7c15u + index;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

}  // namespace engram::client::gpu
