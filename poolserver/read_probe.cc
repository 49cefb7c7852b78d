#include "poolserver/read_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "engram/random.h"

namespace engram::poolserver {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::uint64_t kMostProbed = std::uint64_t{64} << 20;  // beyond most caches
constexpr std::uint64_t kLeastProbed = std::uint64_t{1} << 20;
constexpr std::size_t kProbedRowBytes = 272;
constexpr std::size_t kProbedPage = 4096;
constexpr std::size_t kProbeAhead = 8;
constexpr std::size_t kProbeBatch = 512;
constexpr auto kProbeTime = std::chrono::milliseconds(20);
constexpr unsigned kProbeThreads = 4;

// Rows a second of one thread.
double Gather(std::span<const std::byte> memory, std::uint64_t seed) {
  SeededRandom random(seed);
  std::array<const std::byte*, kProbeBatch + kProbeAhead> rows;
  std::array<std::byte, kProbedRowBytes> row;
  std::uint64_t read = 0, kept = 0;
  Steady::duration took{};
  while (took < kProbeTime) {
    for (const std::byte*& one : rows) {
      one = memory.data() + random.Below(memory.size() - kProbedRowBytes);
    }
    const auto start = Steady::now();
    for (std::size_t i = 0; i < kProbeBatch; ++i) {
      for (std::size_t at = 0; at < kProbedRowBytes; at += 64) {
        __builtin_prefetch(rows[i + kProbeAhead] + at);
      }
      std::memcpy(row.data(), rows[i], row.size());
      kept += static_cast<std::uint64_t>(row[i % row.size()]);
    }
    took += Steady::now() - start;
    read += kProbeBatch;
  }
  __asm__ volatile("" : : "r"(kept));
  return static_cast<double>(read) / std::chrono::duration<double>(took).count();
}

}  // namespace

std::uint64_t MeasureReads(std::span<const std::byte> memory) {
  if (memory.size() < kLeastProbed) return 0;
  // What is mapped only when it is touched is no slower memory.
  std::uint64_t touched = 0;
  for (std::size_t at = 0; at < memory.size(); at += kProbedPage) {
    touched += static_cast<std::uint64_t>(memory[at]);
  }
  __asm__ volatile("" : : "r"(touched));
  std::vector<double> rates(std::clamp(std::thread::hardware_concurrency(), 1u, kProbeThreads));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    threads.emplace_back([&rates, memory, i] { rates[i] = Gather(memory, i + 1); });
  }
  double rate = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    threads[i].join();
    rate += rates[i];
  }
  return static_cast<std::uint64_t>(rate * kProbedRowBytes);
}

std::uint64_t MeasureReads(const Arena::Options& tier) {
  const std::uint64_t bytes = std::min(tier.capacity_bytes, kMostProbed);
  if (!tier.devices.empty()) {
    const fabric::DaxDevice& device = *tier.devices.front();
    return MeasureReads(
        std::span<const std::byte>(device.data(), std::min(device.description().bytes, bytes)));
  }
  fabric::SlabOptions wanted;
  wanted.bytes = bytes;
  wanted.pages = tier.pages;
  wanted.numa_node = tier.numa_node;
  wanted.name = "engram-probe";
  const auto slab = fabric::Slab::Create(wanted);
  return slab.ok() ? MeasureReads(std::span<const std::byte>((*slab)->data(), (*slab)->bytes()))
                   : 0;
}

}  // namespace engram::poolserver
