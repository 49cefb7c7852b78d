// Prime numbers that serve as column heights (ENGRAM section 5). Thread-safe.
#pragma once

#include <cstdint>

namespace engram {

// Exact for every value below 3.4e12; column heights stay below 2^33.
bool IsPrime(std::uint64_t value);
// The smallest prime >= value. REQUIRES: value <= 2^40.
std::uint64_t PrimeAtOrAbove(std::uint64_t value);

}  // namespace engram
