#include "engram/addressing/primes.h"

namespace engram {
namespace {

std::uint64_t MultiplyMod(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % modulus);
}

std::uint64_t PowerMod(std::uint64_t base, std::uint64_t exponent, std::uint64_t modulus) {
  std::uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = MultiplyMod(result, base, modulus);
    base = MultiplyMod(base, base, modulus);
  }
  return result;
}

// One Miller-Rabin round. REQUIRES: value odd, witness < value.
bool PassesRound(std::uint64_t value, std::uint64_t witness) {
  const int twos = __builtin_ctzll(value - 1);
  std::uint64_t power = PowerMod(witness, (value - 1) >> twos, value);
  if (power == 1 || power == value - 1) return true;
  for (int i = 1; i < twos; ++i) {
    power = MultiplyMod(power, power, value);
    if (power == value - 1) return true;
  }
  return false;
}

}  // namespace

bool IsPrime(std::uint64_t value) {
  // These six witnesses leave no strong pseudoprime below 3,474,749,660,383 (Jaeschke 1993).
  constexpr std::uint64_t kWitnesses[] = {2, 3, 5, 7, 11, 13};
  if (value < 2) return false;
  for (std::uint64_t witness : kWitnesses) {
    if (value % witness == 0) return value == witness;
  }
  for (std::uint64_t witness : kWitnesses) {
    if (!PassesRound(value, witness)) return false;
  }
  return true;
}

std::uint64_t PrimeAtOrAbove(std::uint64_t value) {
  while (!IsPrime(value)) ++value;
  return value;
}

}  // namespace engram
