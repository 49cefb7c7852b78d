#include "poolserver/read_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "engram/random.h"

namespace engram::poolserver {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::uint64_t kMostProbed = std::uint64_t{64} << 20;  // beyond most caches
constexpr std::uint64_t kLeastProbed = std::uint64_t{1} << 20;
constexpr std::uint64_t kFirstProbed = std::uint64_t{2} << 20;  // a huge page
constexpr std::size_t kProbedRowBytes = 272;
constexpr std::size_t kProbedPage = 4096;
constexpr std::size_t kProbeAhead = 8;
constexpr std::size_t kProbeBatch = 512;
constexpr auto kProbeTime = std::chrono::milliseconds(20);
// For making memory, or for touching it. Emulated memory takes a minute for what DRAM does in 50
// ms.
constexpr Duration kMakeTime = std::chrono::milliseconds(400);
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

// What is mapped only when it is touched is no slower memory, so each page is. The part that could
// be in time, the least that can be measured in any case.
std::span<const std::byte> Touch(std::span<const std::byte> memory) {
  const auto end = Steady::now() + kMakeTime;
  std::uint64_t touched = 0;
  std::size_t at = 0;
  for (; at < memory.size() && (at < kLeastProbed || Steady::now() < end); at += kProbedPage) {
    touched += static_cast<std::uint64_t>(memory[at]);
  }
  __asm__ volatile("" : : "r"(touched));
  return memory.first(std::min(at, memory.size()));
}

}  // namespace

std::uint64_t AffordableProbe(std::uint64_t made, Duration took, std::uint64_t most) {
  const double ratio = static_cast<double>(kMakeTime.count()) /
                       static_cast<double>(std::max<Duration::rep>(took.count(), 1));
  const double bytes = static_cast<double>(made) * ratio;
  if (bytes >= static_cast<double>(most)) return std::max(made, most);
  // Twice as much tells little more than what is there.
  return bytes < 2.0 * static_cast<double>(made) ? made : static_cast<std::uint64_t>(bytes);
}

std::uint64_t MeasureReads(std::span<const std::byte> memory) {
  if (memory.size() < kLeastProbed) return 0;
  memory = Touch(memory);
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
  wanted.bytes = std::min(bytes, kFirstProbed);
  wanted.pages = tier.pages;
  wanted.numa_node = tier.numa_node;
  wanted.name = "engram-probe";
  const auto start = Steady::now();
  auto slab = fabric::Slab::Create(wanted);
  if (!slab.ok()) return 0;
  const std::uint64_t more = AffordableProbe(wanted.bytes, Steady::now() - start, bytes);
  if (more > wanted.bytes) {
    slab->reset();  // there may be no room for both
    wanted.bytes = more;
    slab = fabric::Slab::Create(wanted);
  }
  return slab.ok() ? MeasureReads(std::span<const std::byte>((*slab)->data(), (*slab)->bytes()))
                   : 0;
}

}  // namespace engram::poolserver
